"""The numbers of the pictures against formulas written out here, and mutants that must change them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any, get_args

import mpmath
import pytest

import ropewalk as rw
from ropewalk.plan import Plan, rope_layer
from ropewalk.plot import data
from ropewalk.plot.catalogue import chart_of
from ropewalk.plot.chart import Line
from ropewalk.plot.pictures.run import REFUSED
from ropewalk.plot.subject import planned
from ropewalk.train.guard.faults import Verdict
from tests.checkpoints.published import path
from tests.plot.samples import DOCUMENTS, LLAMA, QWEN, model, run_folder

LLAMA_BASE, LLAMA_WIDTH = 500_000, 64


def test_sinusoids_are_the_papers_beside_the_digits_of_two() -> None:
    found = data.sinusoids(width=16, length=40)
    for position in (0, 1, 17, 39):
        for feature in range(16):
            angle = position / mpmath.mpf(10_000) ** (mpmath.mpf(feature // 2 * 2) / 16)
            want = mpmath.cos(angle) if feature % 2 else mpmath.sin(angle)
            assert found["values"][position][feature] == pytest.approx(float(want), abs=2e-7)
        assert found["bits"][position] == [int(digit) for digit in reversed(f"{position:06b}")]
    with pytest.raises(TypeError, match="Sinusoidal"):
        data.sinusoids(rw.encodings.ALiBi(heads=2))


def test_wavelengths_of_a_published_config() -> None:
    found = data.wavelengths(LLAMA)
    want = [2 * math.pi * LLAMA_BASE ** (2 * i / LLAMA_WIDTH) for i in range(32)]
    assert found["wavelengths"] == pytest.approx(want, rel=1e-12)
    assert found["trained"] == 8192
    assert found["unfinished"] == sum(wave > 8192 for wave in want) == 14
    # Llama 3's rule: 32 times slower past the trained length, untouched below a quarter of it.
    assert found["scaled_wavelengths"][-1] == pytest.approx(32 * want[-1], rel=1e-12)
    assert found["scaled_wavelengths"][0] == want[0]
    assert found["scaling"] == "llama3 \u00d732"


def test_one_thing_many_ways() -> None:
    rope = rw.encodings.RoPE(head_width=64, base=LLAMA_BASE)
    bare = data.wavelengths(base=LLAMA_BASE, head_width=64, trained=8192)
    for thing in (rope, rope.layer_plan()):
        assert data.wavelengths(thing, trained=8192)["wavelengths"] == bare["wavelengths"]
    assert data.wavelengths(rw.inspect(LLAMA)) == data.wavelengths(LLAMA)
    with pytest.raises(ValueError, match="does not say what length"):
        data.wavelengths(rope)
    with pytest.raises(ValueError, match="base= is for a picture without a checkpoint"):
        data.wavelengths(LLAMA, base=1e4)
    with pytest.raises(ValueError, match=r"nothing rotates in .*bloom"):
        data.wavelengths(str(Path(LLAMA).parent / "bloom-560m.json"))
    with pytest.raises(ValueError, match="layers 0 to 15"):
        data.wavelengths(LLAMA, layer=16)
    with pytest.raises(TypeError, match="int has no plan"):
        data.wavelengths(3)


def test_scalings_follow_their_formulas() -> None:
    base, width, trained, factor = 10_000.0, 64, 4096, 4
    found = data.scalings(base=base, head_width=width, trained=trained, to=factor * trained)
    pairs = range(width // 2)
    assert found["slower"]["linear"] == pytest.approx([factor] * 32, rel=1e-12)
    assert found["slower"]["ntk"] == pytest.approx([factor ** (2 * i / (width - 2)) for i in pairs], rel=1e-12)
    grown = factor * factor - (factor - 1)
    assert found["slower"]["dynamic"] == pytest.approx([grown ** (2 * i / (width - 2)) for i in pairs], rel=1e-12)

    def llama3(i: int) -> float:
        turns = trained * base ** (-2 * i / width) / (2 * math.pi)
        kept = min(max((turns - 1) / (4 - 1), 0), 1)
        return 1 / (kept + (1 - kept) / factor)

    assert found["slower"]["llama3"] == pytest.approx([llama3(i) for i in pairs], rel=1e-12)

    def index(turns: float) -> float:
        return width * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    start, end = math.floor(index(32)), math.ceil(index(1))
    kept = [1 - min(max((i - start) / (end - start), 0), 1) for i in pairs]
    assert found["slower"]["yarn"] == pytest.approx([1 / (k + (1 - k) / factor) for k in kept], rel=1e-12)
    assert found["gains"]["yarn"] == pytest.approx(0.1 * math.log(factor) + 1)
    assert found["own"] is None
    assert data.scalings(LLAMA)["own"]["slower"][-1] == pytest.approx(32)
    with pytest.raises(ValueError, match="within the trained length"):
        data.scalings(LLAMA, to=8192)


def test_a_linear_scaling_of_an_unknown_length_is_not_counted_from_what_is_stated() -> None:
    for name in ("llama-2-7b-32k", "deepseek-coder-6.7b"):
        for picture in ("wavelengths", "scalings", "unseen", "clocks"):
            with pytest.raises(ValueError, match="does not say what length it was trained at; give it: trained=8192"):
                getattr(data, picture)(str(path(name)))
    found = data.wavelengths(str(path("llama-2-7b-32k")), trained=4096)
    assert found["unfinished"] == sum(2 * math.pi * 10_000 ** (2 * i / 128) > 4096 for i in range(64)) == 18
    assert not found["trained_is_stated"]


def test_the_length_is_called_what_it_is() -> None:
    stated = str(path("qwen2-7b"))
    assert "within the stated length" in chart_of(data.wavelengths(stated)).about
    assert "Past the stated length" in chart_of(data.unseen(stated)).about
    with pytest.raises(ValueError, match="within the stated length"):
        data.scalings(stated, to=1000)
    assert "within the trained length" in chart_of(data.wavelengths(LLAMA)).about
    assert "超出训练长度" in chart_of(data.unseen(QWEN), "zh").about


def test_pairs_that_do_not_turn_are_no_turned_ones() -> None:
    gemma = str(path("gemma-4-31b"))
    found = data.wavelengths(gemma)
    assert found["wavelengths"].count(None) == 192
    assert "192 of 256 pairs do not turn at all; of the other 64, " in chart_of(found).about
    with pytest.raises(ValueError, match="proportional RoPE, which no scaling here extends"):
        data.scalings(gemma)
    with pytest.raises(ValueError, match="proportional RoPE, which no scaling here extends"):
        data.unseen(gemma, scaling="yarn")
    assert data.unseen(gemma)["scaling"] == "proportional"


def test_a_dynamic_scaling_is_drawn_where_it_does_something() -> None:
    found = data.wavelengths(str(path("internlm2.5-7b-chat")))
    assert (found["trained"], found["scaled_at"]) == (32_768, 65_536)
    # Factor 2 at twice the length: the base grows by (2 * 2 - 1) ** (128 / 126), the slowest pair turns 3 times slower.
    assert found["scaled_wavelengths"][-1] == pytest.approx(3 * found["wavelengths"][-1], rel=1e-12)
    labels = [getattr(mark, "label", "") for mark in chart_of(found).panels[0].marks]
    assert "dynamic \u00d72 at 65,536 tokens" in labels
    assert data.wavelengths(LLAMA)["scaled_at"] is None


def test_scores_of_a_scaled_and_of_a_free_rope_are_named_and_whole() -> None:
    yarn = rw.encodings.RoPE(head_width=128, scaling=rw.scaling.YaRN(factor=16, trained=4096))
    found = data.distance(yarn, length=100, samples=2)
    first, second = chart_of(found).panels
    assert first.marks[1].label == "base 10,000, yarn \u00d716"
    assert second.title == "q and k independent, base 10,000, yarn \u00d716"
    assert max(first.marks[1].y) > 1.5
    assert first.y.high > max(first.marks[1].y)
    free = data.distance(rw.encodings.RoPE(head_width=4, frequencies=["1", "0.01"]), length=100, samples=2)
    assert chart_of(free).panels[0].marks[1].label == "own frequencies"
    assert chart_of(free, "zh").panels[1].title.endswith("自定义频率")


def test_scores_against_distance() -> None:
    found = data.distance(head_width=16, bases=[1e4], length=3000, samples=3, seed=5)
    omegas = [mpmath.mpf(10) ** (mpmath.mpf(-4 * 2 * i) / 16) for i in range(8)]
    (same,) = found["same"].values()
    for place in (0, 1, 57, len(same) - 1):
        distance = found["distances"][place]
        assert same[place] == pytest.approx(float(sum(mpmath.cos(distance * w) for w in omegas) / 8), abs=1e-9)
    assert same[0] == pytest.approx(1)
    assert any(b > a for a, b in itertools.pairwise(same))  # not monotone
    assert max(map(abs, found["random"]["mean"])) < 1
    # One pair of vectors at distance 0 is their cosine, drawn again here.
    import random

    draw = random.Random(5)
    drawn = [[draw.gauss(0, 1) for _ in range(16)] for _ in range(6)]
    q, k = drawn[0], drawn[3]
    cosine = sum(a * b for a, b in zip(q, k, strict=True)) / math.hypot(*q) / math.hypot(*k)
    assert found["random"]["one"][0] == pytest.approx(cosine, abs=1e-12)


def test_unseen_angles_agree_with_inspect_and_with_counting() -> None:
    found = data.unseen(QWEN)
    trained, to = 32_768, 131_072
    assert (found["trained"], found["to"]) == (trained, to)
    omegas = [1e6 ** (-2 * i / 128) for i in range(64)]
    for pair in (0, 39, 40, 44, 50, 63):
        whole = omegas[pair] * trained >= 2 * math.pi
        for place in range(0, len(found["distances"]), 7):
            angle = float(mpmath.fmod(found["distances"][place] * omegas[pair], 2 * mpmath.pi))
            want = 0 if whole else 1 if angle <= omegas[pair] * trained * (1 + 1e-9) else 2
            assert found["before"][pair][place] == want
    told = {one.scaling: one.past for one in rw.inspect(QWEN, to=to).reach.stretches}
    assert found["pairs_unseen"] == [told["none"], told["yarn"]] == [24, 0]
    assert not any(2 in row for row in found["after"])
    assert data.unseen(QWEN, scaling="linear")["pairs_unseen"] == [24, 0]
    with pytest.raises(ValueError, match="needs lists"):
        data.unseen(QWEN, scaling="longrope")


def test_distances_end_at_the_window() -> None:
    for name in ("llama-4-scout", "command-a", "exaone-4.0-32b", "mistral-7b-v0.1"):
        with pytest.raises(ValueError, match="no distance grows with the text, and no scaling is needed"):
            data.unseen(str(path(name)))
    layer = rope_layer(10_000.0, 64, layout="half", head_width=64, window=6000)
    found = data.unseen(Plan(layers=(layer,), trained=4096), scaling="linear")
    assert (found["to"], found["distances"][-1]) == (6000, 5999)
    assert found["scaling"] == "linear \u00d74"
    free = rope_layer(10_000.0, 64, layout="half", head_width=64)
    assert data.unseen(Plan(layers=(free,), trained=4096))["to"] == 4 * 4096


def test_what_is_said_of_the_slow_sinusoids_is_true() -> None:
    assert "an eighth of a turn" in chart_of(data.sinusoids()).about
    long = chart_of(data.sinusoids(length=512))
    assert "an eighth" not in long.about
    assert long.about.endswith(".")
    assert 10_000 ** (-32 / 64) * 63 < math.pi / 4 < 10_000 ** (-32 / 64) * 511


def test_biases_of_encodings_given_in_python() -> None:
    alone = chart_of(data.biases(rw.encodings.XPos(head_width=64), length=16))
    assert "is multiplied by a factor, one line a pair" in alone.about
    assert "Added" not in alone.about
    fresh = chart_of(data.biases(rw.encodings.T5(heads=2), length=16))
    assert fresh.panels[0].title == "T5"
    made = chart_of(data.biases(kinds=["t5"], length=16))
    assert made.panels[0].title == "T5, before training"
    chain = rw.encodings.Chain(parts=["rope", "alibi"], heads=4, head_width=8)
    assert [panel.title for panel in chart_of(data.biases(chain, length=16)).panels] == ["ALiBi"]


def test_biases_by_head() -> None:
    found = {one["kind"]: one for one in data.biases(heads=4, length=100, head_width=32)["panels"]}
    for head, row in enumerate(found["alibi"]["bias"]):
        slope = 2 ** (-8 * (head + 1) / 4)
        assert row == pytest.approx([-slope * d for d in range(101)], abs=1e-5)
    assert found["xpos"]["numbers"] == sorted(set(found["xpos"]["numbers"]))
    for pair, row in zip(found["xpos"]["numbers"], found["xpos"]["bias"], strict=True):
        rate = (2 * pair + 0.4 * 32) / (1.4 * 32)
        assert row == pytest.approx([d / 512 * math.log(rate) for d in range(101)], abs=2e-6)
    for row in found["t5"]["bias"]:
        assert len(set(row[:16])) == 16  # the first sixteen distances have a bucket each
        assert len(set(row)) <= 32
    for row in found["kerple"]["bias"]:
        assert row[0] == 0
        assert row == sorted(row, reverse=True)
    with pytest.raises(ValueError, match="no encoding here has a bias"):
        data.biases(rw.encodings.RoPE(head_width=8))


def test_masks_by_counting() -> None:
    packed, padded, plain = data.masks()["panels"]
    assert packed["index"] == [0, 1, 2, 0, 1, 0, 1, 2]
    for q in range(8):
        for k in range(8):
            assert packed["visible"][q][k] == (packed["segment"][q] == packed["segment"][k] and k <= q)
            assert padded["visible"][q][k] == (3 <= k <= q)
            assert plain["visible"][q][k] == (0 <= q - k < 3)
    (sink,) = data.masks(length=9, window=2, keep_first=1)["panels"]
    assert sink["visible"][8] == [True] + [False] * 6 + [True, True]
    at = rw.positions.packed([[2, 2]])
    assert data.masks(at)["panels"][0]["index"] == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="too long to read"):
        data.masks(packed=[20, 20])
    with pytest.raises(ValueError, match="both say where tokens are"):
        data.masks(at, length=3)


def test_layouts_are_the_permutation_of_llama_cpp() -> None:
    found = data.layouts(head_width=10, rotary_width=8)
    # llama.cpp's conversion: reshape(heads, 2, width / 2).swapaxes(1, 2)
    assert found["pairs_from_half"] == [half * 4 + i for i in range(4) for half in range(2)] + [8, 9]
    assert found["pair_of"] == [0, 1, 2, 3, 0, 1, 2, 3, None, None]


def test_loss_by_position_has_a_band() -> None:
    plain, yarn = data.loss(DOCUMENTS)["series"]
    assert plain["loss"] == pytest.approx([3.0, 2.3, 4.2])
    error = math.sqrt((0 + 0.25 + 0.25) / 2 / 3)
    student = 4.302653  # of Student's distribution, 97.5 % with 2 degrees of freedom
    assert plain["low"][0] == pytest.approx(3.0 - student * error)
    assert plain["high"][0] == pytest.approx(3.0 + student * error)
    assert (yarn["low"], yarn["count"]) == ([3.0, 2.1, 2.0], None)
    with pytest.raises(ValueError, match="needs 3 losses"):
        data.loss({"short": {"at": [0, 1, 2], "losses": [[1.0]]}})


def test_a_place_without_a_finite_loss_is_left_out(tmp_path: Path) -> None:
    some, none = [[3.0, math.nan, 4.0], [2.0, 2.0, 5.0]], [[math.inf]]
    found = data.loss({"a": {"at": [0, 1, 2], "losses": some}, "b": {"at": [0, 2], "loss": [1.0, math.nan]}})
    assert [one["loss"] for one in found["series"]] == [[2.5, None, 4.5], [1.0, None]]
    drawn = [mark for mark in chart_of(found).panels[0].marks if isinstance(mark, Line)]
    assert [list(line.x) for line in drawn] == [[0, 2], [0]]
    with pytest.raises(ValueError, match="no loss of c is finite"):
        chart_of(data.loss({"c": {"at": [0], "losses": none}}))
    runs = [run_folder(tmp_path / name, 0.01) for name in ("one", "two")]
    metrics = runs[0] / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text("utf-8").splitlines()]
    for line in lines:
        if line.get("by_position"):
            line["by_position"][2]["loss"] = "nan"
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    (series,) = data.loss(runs, together=True)["series"]
    assert series["loss"] == [pytest.approx(3.6), pytest.approx(3.5), None, pytest.approx(3.3)]


def test_runs_are_read_from_their_metrics(tmp_path: Path) -> None:
    one, two = run_folder(tmp_path / "one", 0.01), run_folder(tmp_path / "two", 0.02)
    (found,) = data.run(one)["runs"]
    assert found["steps"] == list(range(1, 41))
    assert found["loss"] == pytest.approx([4 - 0.01 * step for step in range(1, 41)])
    assert found["valid"] == {"steps": [20, 40], "loss": pytest.approx([3.8, 3.6])}
    assert found["events"] == [{"step": 7, "what": "spike"}]
    (thin,) = data.run(one, points=10)["runs"]
    assert (thin["steps_per_point"], thin["steps"]) == (4, list(range(4, 41, 4)))
    assert thin["speed"][0] == pytest.approx(102.5)
    (series,) = data.loss([one, two], together=True)["series"]
    assert series["loss"] == pytest.approx([3.4 - 0.1 * i for i in range(4)])
    assert series["high"][0] - series["low"][0] == pytest.approx(2 * 12.7062047 * math.sqrt(0.08 / 2))
    assert series["at"] == [7, 23, 39, 55]  # the middles of bins of 16
    assert data.loss(one)["series"][0]["loss"][0] == pytest.approx(3.6)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "metrics.jsonl").write_text("", encoding="utf-8")
    for name in ("run", "loss"):
        with pytest.raises(ValueError, match="yet; wait for one"):
            getattr(data, name)(tmp_path / "empty")


def test_runs_whose_folders_have_one_name_are_all_kept(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / seed / "rope", slope) for seed, slope in (("seed0", 0.01), ("seed1", 0.02))]
    other = run_folder(tmp_path / "seed1" / "alibi", 0.03)
    for given in (runs, [run / "metrics.jsonl" for run in runs]):
        found = data.loss([*given, other])["series"]
        assert [one["name"] for one in found] == ["seed0/rope", "seed1/rope", "alibi"]
        assert [one["loss"][0] for one in found] == pytest.approx([3.6, 3.2, 2.8])
        (joined,) = data.loss(given, together=True)["series"]
        assert (joined["name"], joined["count"]) == ("seed0/rope, seed1/rope", 2)
        assert joined["loss"][0] == pytest.approx(3.4)
        assert joined["low"][0] < 3.4 < joined["high"][0]
        assert [one["name"] for one in data.run(given)["runs"]] == ["seed0/rope", "seed1/rope"]
    (alone,) = data.loss(other / "metrics.jsonl")["series"]
    assert alone["name"] == "alibi"
    copy = other / "before.jsonl"
    copy.write_bytes((other / "metrics.jsonl").read_bytes())
    assert [one["name"] for one in data.run([other, copy])["runs"]] == ["metrics.jsonl", "before.jsonl"]
    with pytest.raises(ValueError, match="is named twice"):
        data.loss([other, other / "metrics.jsonl"], together=True)


def test_only_refused_and_undone_updates_are_counted(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    with (run / "metrics.jsonl").open("a", encoding="utf-8") as file:
        for what in ("start", "drift", "not saved", "not finite"):
            file.write(json.dumps({"kind": "event", "what": what, "step": 9}) + "\n")
    found = data.run(run)
    assert len(found["runs"][0]["events"]) == 5
    assert "2 updates were refused or undone" in chart_of(found).about
    found["runs"][0]["events"] = [{"step": 0, "what": "start"}]
    assert "updates" not in chart_of(found).about


def test_what_a_picture_of_runs_counts_is_what_faults_are_called() -> None:
    assert {"good", *REFUSED} == set(get_args(Verdict))


def test_clocks_within_the_trained_length_are_those_of_short_texts() -> None:
    phi = str(path("phi-3-mini-128k"))
    short, long = planned(phi)[1].layers[0].for_length(4096), planned(phi)[1].layers[0].for_length(4097)
    for positions, layer in (([0, 1000], short), ([4095], short), ([4096], long)):
        found = data.clocks(phi, positions=positions)
        assert found["wavelengths"] == [2**64 / layer.turns[pair] for pair in found["pairs"]]
    assert short.turns != long.turns


def test_clocks_are_exact_far_out() -> None:
    found = data.clocks(base=10_000, head_width=64, positions=[7, 2**40], pairs=4)
    assert found["pairs"] == [0, 10, 21, 31]
    with mpmath.workdps(60):
        for column, pair in enumerate(found["pairs"]):
            for row, position in enumerate(found["positions"]):
                turns = position * mpmath.mpf(10_000) ** (mpmath.mpf(-2 * pair) / 64) / (2 * mpmath.pi)
                # The frequency is rounded to 2^-65 of a turn, 2^40 of which are 2^-25.
                assert found["turned"][row][column] == pytest.approx(float(turns % 1), abs=2**-25)
                assert found["whole_turns"][row][column] == int(turns)
    with pytest.raises(ValueError, match="outside 0 to"):
        data.clocks(positions=[2**41])


def test_products_depend_on_the_distance_until_projected() -> None:
    found = data.products(width=16, length=20)
    omegas = [10_000 ** (-2 * i / 16) for i in range(8)]
    for i in (0, 3, 19):
        for j in (0, 7, 19):
            assert found["plain"][i][j] == pytest.approx(sum(math.cos((i - j) * w) for w in omegas) / 8, abs=1e-6)
    assert found["projected"][3][7] != found["projected"][7][3]


def test_buckets_are_t5s() -> None:
    found = data.buckets(buckets=32, farthest=128)
    for ahead, causal, both in zip(found["ahead"], *found["bucket"].values(), strict=True):
        assert causal == t5_bucket(max(-ahead, 0), 32, 128)
        assert both == t5_bucket(abs(ahead), 16, 128) + (16 if ahead > 0 else 0)


def t5_bucket(distance: int, buckets: int, farthest: int) -> int:
    exact = buckets // 2
    if distance < exact:
        return distance
    grown = mpmath.log(mpmath.mpf(distance) / exact) / mpmath.log(mpmath.mpf(farthest) / exact)
    return min(exact + int(mpmath.floor(grown * (buckets - exact) + mpmath.mpf(10) ** -12)), buckets - 1)


def test_engines_say_what_inspect_says() -> None:
    folder = Path(LLAMA).parent
    names = ["llama-3.2-1b", "gpt-oss-20b", "kimi-k2"]
    found = data.engines([str(folder / f"{name}.json") for name in names])
    assert [row["name"] for row in found["rows"]] == ["gpt-oss-20b", "kimi-k2", "llama-3.2-1b"]  # at odds first
    for row in found["rows"]:
        report = rw.inspect(folder / f"{row['name']}.json")
        assert row["agree"] == report.agree
        for name, cell in row["engines"].items():
            told = report.to_dict()["engines"][name]
            assert (cell["kind"] == "refuses") == (told["refusal"] is not None)
            assert (cell["kind"] == "departs") == (told["refusal"] is None and not told["agrees"])
    with pytest.raises(ValueError, match="no checkpoint here"):
        data.engines(str(folder / "bloom-560m.json"))


def test_sections_by_their_definition() -> None:
    found = data.sections(sections=[16, 24, 24])["axis_of"]
    assert found["blocks"] == [0] * 16 + [1] * 24 + [2] * 24
    qwen = data.sections(str(Path(LLAMA).parent / "qwen3-vl-8b.json"))
    assert (qwen["sections"], qwen["own"]) == ([24, 20, 20], "interleaved")
    # Qwen3-VL: time everywhere, then height in 1::3 up to 60 and width in 2::3 up to 60.
    want = [0] * 64
    want[1:60:3], want[2:60:3] = [1] * 20, [2] * 20
    assert qwen["axis_of"]["interleaved"] == want
    with pytest.raises(ValueError, match="positions on one axis"):
        data.sections(LLAMA)
    with pytest.raises(ValueError, match="leave one of them out"):
        data.sections(LLAMA, sections=[2, 2, 2])


def test_attention_and_norms_of_a_model_by_hand() -> None:
    import torch

    network, ids = model(), list(range(3, 12))
    found = data.attention(network, ids=ids, layer=0, heads=[1])
    norms = data.norms(network, ids=ids)
    # The first layer by hand: norm, projections, rotation in float64, softmax.
    block = network.decoder.blocks[0]
    seen: list[torch.Tensor] = []
    hook = block.attention.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    with torch.no_grad():
        network(torch.tensor([ids]))
        q, k, _ = block.attention.project(seen[0], seen[0])
    hook.remove()
    q, k = q[0].double(), k[0].double()  # (H, L, K)
    pairs = q.shape[-1] // 2
    angle = torch.outer(torch.arange(9.0).double(), 10_000.0 ** (-2 * torch.arange(pairs).double() / (2 * pairs)))

    def rotated(x: torch.Tensor) -> torch.Tensor:
        z = torch.complex(x[..., :pairs], x[..., pairs:]) * torch.polar(torch.ones_like(angle), angle)
        return torch.cat([z.real, z.imag], dim=-1)

    score = rotated(q[1]) @ rotated(k[1]).T / (2 * pairs) ** 0.5
    score = score.masked_fill(torch.ones(9, 9).triu(1).bool(), -math.inf)
    assert torch.tensor(found["weights"][0]).double().sub(score.softmax(-1)).abs().max() < 2e-6
    lengths = (q[..., :pairs] ** 2 + q[..., pairs:] ** 2).mean(dim=(0, 1)).sqrt()
    assert norms["q"][0] == pytest.approx(lengths.tolist(), abs=1e-5)
    assert (len(norms["k"]), norms["layers"]) == (3, [0, 1, 2])
    for settings, says in (({}, "give ids"), ({"ids": [1, 50]}, "50 is not one"), ({"ids": ids, "layer": 3}, "0 to 2")):
        with pytest.raises(ValueError, match=says):
            data.attention(network, **settings)


def halved(function: Any) -> Any:
    return lambda *args, **settings: tuple(value / 2 for value in function(*args, **settings))


def turned(function: Any) -> Any:
    return lambda *args, **settings: function(*args, **settings).flip(0)


MUTANTS = {
    "sinusoids": ("ropewalk.encodings.sinusoidal.cos_sin", halved, {}),
    "wavelengths": ("ropewalk.plot.subject.ladder", halved, {}),
    "scalings": ("ropewalk.scaling.ntk.powers", halved, {}),
    "distance": ("ropewalk.encodings.rope.cos_sin", halved, {"length": 64, "samples": 2}),
    "unseen": ("ropewalk.scaling.yarn.ladder", lambda ladder: lambda *a: tuple(4 * w for w in ladder(*a)), {}),
    "biases": ("ropewalk.encodings.alibi.slopes", lambda f: lambda heads: f(heads)[::-1], {"kinds": ["alibi"]}),
    "masks": ("ropewalk.attention.rule.PAD", lambda pad: 0, {}),
    "layouts": ("ropewalk.checkpoints.export.permute.half_to_pairs", turned, {}),
    "clocks": ("ropewalk.plan.turns", lambda f: lambda omegas: f([omega / 2 for omega in omegas]), {}),
    "products": ("ropewalk.encodings.sinusoidal.cos_sin", halved, {"length": 8}),
    "buckets": ("ropewalk.encodings.t5.bucket_edges", lambda f: lambda *a: tuple(e + 1 for e in f(*a)), {}),
    "sections": ("ropewalk.encodings.rope._axis_of", lambda f: lambda *a: f(*a)[::-1], {}),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_changes_the_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, mutate, settings = MUTANTS[name]
    before = getattr(data, name)(**settings)
    module, _, attribute = place.rpartition(".")
    target: Any = __import__(module, fromlist=[attribute])
    monkeypatch.setattr(target, attribute, mutate(getattr(target, attribute)))
    assert getattr(data, name)(**settings) != before
