"""The report of inspect as data: verdict, wavelengths, what a longer text would need, and drift between two."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.files.hub import locate
from ropewalk.checkpoints.inspect.report import Report, inspect
from ropewalk.cli.inspect.words import verdict
from tests.checkpoints.engine_configs import GPT_OSS, LLAMA, PHI3, YARN, llama

PUBLISHED = sorted((Path(__file__).parents[1] / "published").glob("*.json"))


@pytest.fixture
def saved(tmp_path: Path):
    def save(config: dict[str, Any], name: str = "model") -> Path:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "config.json").write_text(json.dumps(config), encoding="utf-8")
        return tmp_path / name

    return save


def test_a_checkpoint_all_engines_read_alike(saved) -> None:
    report = inspect(saved(llama(rope_scaling=YARN)))
    assert report.agree
    assert report.at_odds == ()
    assert set(report.rows) == {"transformers5", "transformers4", "vllm", "llama.cpp", "sglang", "mlx", "paper"}
    assert not report.rows["paper"].agrees  # which never counts
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["agree"]
    assert data["engines"]["vllm"]["version"] == "0.32.0"
    assert data["plans"]["decoder"]["trained"] == 2048
    assert len(data["engines"]["paper"]["layers"][0]["frequencies"]) == 32


def test_which_engines_count(saved) -> None:
    path = saved({**GPT_OSS})
    assert inspect(path).at_odds == ("llama.cpp", "mlx")
    assert inspect(path, engines=["vllm", "transformers5"]).agree
    with pytest.raises(ValueError, match="no engine 'triton'; there are transformers5"):
        inspect(path, engines=["triton"])
    with pytest.raises(ValueError, match="no engine 'vlm', did you mean 'vllm'"):
        inspect(path, engines=["vlm"])
    for nothing in ([], [""]):
        with pytest.raises(ValueError, match="no engine is named"):
            inspect(path, engines=nothing)


def test_longrope_is_at_odds_where_one_list_serves_both_lengths(saved) -> None:
    """Choosing by the text, as the authors' code does, is no departure; nor is an end at the trained length."""
    report = inspect(saved({**PHI3}))
    assert report.at_odds == ("llama.cpp", "sglang", "mlx")
    assert report.rows["llama.cpp"].departs == ("frequencies",)
    assert report.rows["vllm"].reading.length == report.resolved.plan.trained
    assert report.rows["vllm"].apart == 1.0
    assert inspect(saved({**PHI3}), engines=["vllm"]).agree


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_marks_and_reasons_are_those_of_the_numbers(path: Path) -> None:
    """An engine departs in what its numbers differ in, each with a reason; and what is not known is not agreed on."""
    try:
        report = inspect(path)
    except BadInput:
        return
    for row in report.rows.values():
        reading = row.reading
        reasons = {note.about for note in reading.notes if note.counts}
        if reading.engine in ("YaRN paper", "dynamic NTK, paper"):
            continue
        besides = {"gains"} if "frequencies" in reasons else set()  # which a scaling that is lost takes with it
        assert reasons - set(reading.unknown) <= set(row.departs) <= reasons | besides, reading.engine
        assert row.agrees == (not row.departs)
        assert not set(row.departs) & set(reading.unknown)
    assert set(report.compared) | set(report.unknown) == set(report.applicable)


def test_what_is_not_known_is_named_and_not_agreed_on(saved) -> None:
    """How vLLM passes ModernBERT's window to transformers' code was not read."""
    config = {
        "model_type": "modernbert",
        "architectures": ["ModernBertForMaskedLM"],
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "hidden_size": 256,
        "max_position_embeddings": 8192,
        "local_attention": 128,
    }
    report = inspect(saved(config))
    assert report.unknown == {"windows": ("vllm", "sglang")}
    assert report.compared == ("frequencies", "gains")
    assert verdict(report).endswith("agree on frequencies and gains. Not compared: windows in vLLM and SGLang.")
    assert inspect(saved(config), engines=["llama.cpp"]).compared == ("frequencies", "gains", "windows")


def test_the_verdict_says_who_departs_and_in_what(saved) -> None:
    window = {**LLAMA, "model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 4096}
    told = "llama.cpp departs from the checkpoint in windows, SGLang in windows, MLX-LM in windows; "
    told += "transformers 5, transformers 4 and vLLM agree on "
    assert verdict(inspect(saved(window))) == f"{told}frequencies, gains and windows."
    assert verdict(inspect(saved(window), engines=["llama.cpp"])) == "llama.cpp departs from the checkpoint in windows."
    both = verdict(inspect(saved(llama(rope_scaling={"rope_type": "dynamic", "factor": 4.0}))))
    assert both.startswith("transformers 5 departs from the checkpoint in frequencies, transformers 4 in frequencies,")


def test_wavelengths_against_the_trained_length(saved) -> None:
    (waves,) = inspect(saved(llama())).waves
    lengths = [2 * math.pi * 10_000 ** (2 * i / 64) for i in range(32)]
    assert waves.unfinished == sum(length > 8192 for length in lengths)
    assert waves.longest == pytest.approx(lengths[-1])
    assert waves.pairs == waves.turning == 32


def test_no_wavelengths_against_a_length_that_nothing_says(saved) -> None:
    linear = saved(llama(rope_scaling={"rope_type": "linear", "factor": 8.0}))
    report = inspect(linear)
    assert (report.resolved.plan.trained, report.resolved.plan.stated) == (None, 8192)
    assert report.waves == ()


def test_what_each_scaling_would_do(saved) -> None:
    report = inspect(saved(llama(max_position_embeddings=2048)), to=16_384)
    assert report.reach is not None
    found = {one.scaling: one for one in report.reach.stretches}
    assert list(found) == ["none", "linear", "ntk", "dynamic", "yarn", "llama3"]
    assert {one.factor for name, one in found.items() if name != "none"} == {8.0}
    assert found["none"].past == sum(2 * math.pi * 10_000 ** (2 * i / 64) > 2048 for i in range(32))
    assert found["linear"].first == 0
    assert found["ntk"].first == 1
    # Golden values for base 1e4, width 64, trained 2048, x8: yarn's ramp starts after pair 8, llama3's after pair 15.
    assert found["yarn"].first == 9
    assert found["llama3"].first == 16
    assert found["yarn"].gain == pytest.approx(1.2079441542)
    assert found["linear"].past == found["yarn"].past == found["llama3"].past == found["dynamic"].past == 0
    assert found["ntk"].past == found["none"].past - 1  # only the slowest pair is divided by all of the factor


def test_a_length_that_makes_no_sense(saved) -> None:
    with pytest.raises(BadInput, match="0 is not a length"):
        inspect(saved(llama(max_position_embeddings=2048)), to=0)


def test_drift_of_a_fine_tune_from_its_base(saved) -> None:
    base = saved(llama(), "base")
    tuned = saved(llama(rope_theta=500_000.0, rope_scaling=YARN, max_position_embeddings=8192), "tuned")
    assert inspect(base, against=base).drifts == ()
    found = {drift.field: drift for drift in inspect(tuned, against=base).drifts}
    assert (found["base"].ours, found["base"].theirs) == (500_000.0, 10_000.0)
    assert found["base"].layers == (0, 1)
    assert found["base"].source == "config.json:rope_theta"
    assert found["scaling"].ours.startswith("yarn x4")
    assert found["scaling"].theirs is None
    assert (found["trained"].ours, found["trained"].theirs) == (2048, None)
    stretched = saved(llama(rope_theta=500_000.0, rope_scaling={**YARN, "factor": 8.0}), "stretched")
    found = {drift.field: drift for drift in inspect(stretched, against=tuned).drifts}
    assert (found["scaling.factor"].ours, found["scaling.factor"].theirs) == (8.0, 4.0)
    assert "base" not in found
    deeper = saved(llama(num_hidden_layers=3), "deeper")
    assert [drift.field for drift in inspect(deeper, against=base).drifts] == ["layers"]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_published_checkpoints_are_reported_or_refused_with_a_reason(path: Path) -> None:
    try:
        report = inspect(path)
    except BadInput:
        return  # which of them, and why, the resolver's own tests say
    json.dumps(report.to_dict(), allow_nan=False)
    assert isinstance(report, Report)


def known(name: str) -> dict[str, set[str]]:
    """What each engine is said to do wrong with a published checkpoint."""
    report = inspect(Path(__file__).parents[1] / "published" / f"{name}.json")
    return {
        engine: {note.what for note in row.reading.notes if note.counts}
        for engine, row in report.rows.items()
        if row.reading.disagrees
    }


@pytest.mark.skipif(not PUBLISHED, reason="the corpus of published configs is not here")
def test_the_known_disagreements_are_found_in_published_checkpoints() -> None:
    assert set(known("gpt-oss-20b")) == {"llama.cpp", "mlx"}
    # Phi-3's choice in every call is its authors' own, so those with one list for all texts or a batch depart.
    assert set(known("phi-3-mini-128k")) == set(known("phi-4-mini")) == {"llama.cpp", "sglang", "mlx"}
    assert set(known("olmo-3-7b-v5")) == {"transformers4"}
    assert set(known("deepseek-v2-lite")) == {"transformers4"}
    assert set(known("internlm2.5-7b-chat")) == {"vllm", "llama.cpp", "sglang", "mlx"}
    assert set(known("kimi-k2")) == {"llama.cpp"}
    # Their windows are dropped in conversion, or switched off.
    for name in ("mistral-7b-v0.1", "phi-3-mini-4k", "starcoder2-3b"):
        assert set(known(name)) == {"llama.cpp", "sglang", "mlx"}, name
    assert set(known("command-r7b")) == set(known("command-a")) == {"vllm", "sglang"}  # sliding_window + 1
    assert set(known("ministral-3-8b")) == {"vllm"}  # no temperature from config.json
    for name in ("llama-3.1-8b", "qwen2.5-7b-instruct-yarn", "deepseek-v3", "gemma-3-27b", "smollm3-3b", "qwen3-8b"):
        assert known(name) == {}, name


def test_paths_that_are_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("nothing", "a/b/c", "some/config.json", "./x", "../up", "org/na me"):
        with pytest.raises(BadInput, match="does not exist"):
            locate(path)


def test_a_local_path_wins_over_a_name_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: pytest.fail("it was fetched"))
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert locate("org/name") == (Path("org/name"), None)


def test_a_slip_in_a_path_does_not_go_to_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ropewalk.checkpoints.files.hub._fetched", lambda *_: pytest.fail("it was fetched"))
    (tmp_path / "models" / "llama").mkdir(parents=True)
    with pytest.raises(BadInput, match="models/lama: path: there is no such path here, and there is models/llama"):
        locate("models/lama")


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
def test_no_socket_where_the_hub_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, "1")
    monkeypatch.setattr("socket.create_connection", lambda *_, **__: pytest.fail("a socket was opened"))
    with pytest.raises(BadInput, match=f"there is no such path here, and {variable} is set"):
        locate("org/no-such-name-at-all")
    cached = tmp_path / "config.json"
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: str(cached))
    assert locate("org/name") == (cached, "org/name")


def test_only_the_config_of_a_name_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")
    (tmp_path / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    asked = []

    def fetch(name: str, file: str, **_: Any) -> str:
        asked.append((name, file))
        return str(tmp_path / "config.json")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fetch)
    monkeypatch.setattr("ropewalk.checkpoints.files.hub._reachable", lambda: True)
    assert inspect("org/name").resolved.name == "org/name"
    assert asked == [("org/name", "config.json")]


@pytest.mark.parametrize("endpoint", ["http://127.0.0.1:9", "https://no-such-host.invalid"])
def test_offline_does_not_try_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    start = time.perf_counter()
    with pytest.raises(BadInput, match="hub cannot be reached"):
        locate("org/no-such-name")
    assert time.perf_counter() - start < 8


def test_offline_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("huggingface_hub")

    def fail(*_: Any, **__: Any) -> str:
        raise ConnectionError("no route to host")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    monkeypatch.setattr("ropewalk.checkpoints.files.hub._reachable", lambda: True)
    with pytest.raises(BadInput, match=r"ConnectionError: no route to host.*download config.json and pass that"):
        locate("org/name")
