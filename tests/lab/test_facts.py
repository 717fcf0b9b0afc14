"""What the panels show: lines of Python print the digits shown, links restore the state, data are the library's."""

from __future__ import annotations

import contextlib
import io
import json
import random
from typing import Any

import pytest

from ropewalk.checkpoints.inspect.lengths import candidates
from ropewalk.lab import source
from ropewalk.plan import Plan, rope_layer
from ropewalk.plot import data
from ropewalk.plot.subject import planned
from ropewalk.scaling import find
from tests.checkpoints.published import path
from tests.lab.engine import FACTS

CHECKPOINTS = json.loads(source.text("checkpoints.json"))
ROPE = [entry for entry in CHECKPOINTS if entry["kind"] == "rope"]


def printed(code: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "copied", "exec"), {})  # noqa: S102  the lines that the lab offers, as a reader would run them
    return out.getvalue().rstrip("\n")


STATES = [
    "",
    "model=&bias=kerplepower&scale=0.01220703125&rate=1&query=1&key=0",  # halfway between two numbers of ten digits
    "model=deepseek-v3&pair=30&position=1099511627776&shift=131072&product=float32",
    "model=gpt-oss-20b&pair=9&position=131071&apart=4096&shift=16777217&product=float32&bias=t5&query=63&key=1",
    "model=phi-3-mini-128k&pair=47&position=4097&to=131072&bias=t5both&query=3&key=60&buckets=16&farthest=200",
    "model=gemma-4-31b&pair=200&position=262144&shift=1000000000&apart=0&bias=fire&query=60&key=2",
    "model=&base=999999.4420358813&width=96&trained=2048&scaling=ntk&to=32768&pair=0&bias=kerple&scale=0.7&rate=1.3",
    "model=internlm2.5-7b-chat&to=131072&pair=63&position=100000",
    "model=gemma-4-31b&pair=10&to=1048576&scaling=yarn",
    "model=&scaling=dynamic&to=16384&pair=63&first=63&second=0&feature=33&bias=kerplepower&rate=0.3&key=40",
    "model=&scaling=yarn&to=65536&width=64&base=500000&pair=31&product=float32&shift=99999&first=0&features=100",
    "model=&scaling=llama3&to=4096&trained=1024&pair=12&feature=99&features=512&heads=12&head=11&query=17&key=17",
    "model=opus-mt-en-de&scaling=linear&to=131072&feature=300&first=33&second=31&position=0&bias=fire&query=4&key=4",
]


@pytest.mark.parametrize("link", STATES)
def test_copied_python_prints_the_digits_shown(link: str, call: Any) -> None:
    for panel in FACTS:
        for number in call("shown", panel, link)["numbers"]:
            assert printed(number["python"]) == number["value"], number["python"]


@pytest.mark.parametrize("scaling", ["linear", "yarn", "llama3"])
def test_what_a_scaling_brings_back_is_seen_up_to_the_last_token(scaling: str, call: Any) -> None:
    """As `plot unseen` counts: angles were seen up to the end of the trained length, which is past its last token."""
    own = f"model=&base=10000&width=128&trained=4096&scaling={scaling}&to=16384&pair=63"
    rows = call("shown", "clockFacts", f"{own}&position=16383")["rows"]
    assert [row[4][0] for row in rows] == ["seen_yes"] * 64
    rows = call("shown", "clockFacts", f"{own.replace(scaling, 'none')}&position=16383")["rows"]
    assert "seen_no" in [row[4][0] for row in rows]


def test_links_restore_every_setting(call: Any) -> None:
    generator = random.Random(7)
    fields = call(
        "() => Object.fromEntries(Object.entries(FIELDS).map(([k, f]) => [k, [f.low ?? null, f.high ?? null]]))"
    )
    choices = {
        "model": ["", "mpt-7b", "kimi-k2"], "scaling": ["none", "yarn"], "product": ["float32"], "bias": ["t5", "fire"],
    }  # fmt: skip
    for _ in range(20):
        state = {
            name: generator.choice(choices[name])
            if name in choices
            else low + 4 * generator.randrange(int(high - low) // 4 + 1)
            for name, (low, high) in fields.items()
        }
        assert call("(state) => fromLink(toLink(state))", state) == state
    assert call("() => toLink(start())") == ""


@pytest.mark.parametrize(
    "link",
    [
        "position=-5",
        "position=NaN",
        "position=",
        "width=7.5",
        "model=nobody",
        "%zz=%zz",
        "__proto__=1",
        "to=1e99",
        "=&=",
    ],
)
def test_bad_links_do_no_harm(link: str, call: Any) -> None:
    state = call("(link) => fromLink(link)", link)
    assert set(state) == set(call("() => start()"))
    for panel in FACTS:
        assert call("shown", panel, link)["numbers"]


def test_the_checkpoints_are_what_inspect_reads() -> None:
    from scripts.lab_checkpoints import text

    assert source.text("checkpoints.json") == text(), "run python scripts/lab_checkpoints.py"
    assert len(ROPE) > 90
    # Their lengths are after a linear scaling, and nothing says what they were trained at.
    assert not {"gemma-3-4b", "llama-2-7b-32k", "deepseek-coder-6.7b"} & {entry["name"] for entry in ROPE}


def test_scalings_are_the_candidates_of_inspect(call: Any) -> None:
    for entry in ROPE:
        given = entry.get("scaling")
        own = None if given is None else find(given["kind"]).model_validate(given)
        layer = rope_layer(entry["base"], entry["width"], own, layout=entry["layout"])
        _, plan = planned(path(entry["name"]))
        for factor in (1, 4, 32):
            to = factor * entry["trained"]
            want = candidates(
                Plan(layers=plan.layers, trained=plan.trained, extended=plan.extended), layer, entry["trained"], to
            )
            got = call("candidates", given, entry["trained"], to, entry.get("reach", 0))
            made = {name: find(one["kind"]).model_validate(one) for name, one in got.items()}
            assert made == want, entry["name"]


def test_a_checkpoint_s_own_dynamic_scaling_follows_the_text(call: Any) -> None:
    link = "model=internlm2.5-7b-chat&pair=63&to="
    own = {to: call("shown", "scalingFacts", f"{link}{to}")["slower"]["own"][63] for to in (98_304, 131_072)}
    # As transformers has it: factor 2, so 2 * 3 - 1 and 2 * 4 - 1 for the slowest pair at 3 and 4 times the length.
    assert own == pytest.approx({98_304: 5, 131_072: 7}, rel=1e-12)
    assert call("shown", "wavelengthFacts", f"{link}131072")["scaled"]


def test_proportional_rope_has_no_other_scaling(call: Any) -> None:
    for scaling in ("own", "none", "yarn"):
        shown = call("shown", "scalingFacts", f"model=gemma-4-31b&pair=200&to=1048576&scaling={scaling}")
        assert list(shown["slower"]) == ["own"]
        assert shown["slower"]["own"] == [1] * 64 + [None] * 192
        assert not call("shown", "wavelengthFacts", f"model=gemma-4-31b&scaling={scaling}")["scaled"]
        said = json.dumps(shown["sentence"])
        assert "Infinity" not in said
        assert "\\u221e" not in said


def test_wavelengths_are_those_of_the_picture(call: Any) -> None:
    for name in ("llama-3.1-8b", "kimi-k2", "gemma-4-31b", "pythia-70m", "phi-3-mini-128k"):
        want = data.wavelengths(str(path(name)))
        shown = call("shown", "wavelengthFacts", f"model={name}")
        # Neither JSON has infinity: a pair that stands still has no wavelength in it.
        turning = [wave for wave in want["wavelengths"] if wave is not None]
        assert shown["trainedWaves"][: len(turning)] == pytest.approx(turning, rel=1e-14)
        assert shown["trainedWaves"][len(turning) :] == [None] * (len(want["wavelengths"]) - len(turning))
        assert shown["unfinished"] == want["unfinished"]


def test_a_sliding_slope_is_the_head_s_own(call: Any) -> None:
    shown = call("shown", "biasFacts", "model=bloom-560m&head=3&query=10&key=4")
    assert shown["numbers"][0]["value"] == f"{2 ** (-8 * 3 / 16):.10f}"
    assert shown["numbers"][1]["value"] == f"{-6 * 2 ** (-8 * 3 / 16):.10f}"


def test_float32_scores_move_and_exact_ones_do_not(call: Any) -> None:
    shown = call("shown", "relativeFacts", "model=llama-3.1-8b")
    assert max(shown["moved"]["exact"]) < 1e-12
    assert shown["moved"]["float32"][10] < 1e-5 < shown["moved"]["float32"][17]  # at 1,024 and at 131,072
    assert max(shown["moved"]["float32"]) > 1e-1
