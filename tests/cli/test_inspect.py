"""`ropewalk inspect` at the terminal: what it prints, its exit codes, how fast it is, and that torch stays out."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from ropewalk.cli.inspect.command import clean
from tests.checkpoints.engine_configs import DEEPSEEK, GPT_OSS, PHI3, YARN, llama
from tests.cli.conftest import Ropewalk
from tests.test_layers import run_without_torch

COMMAND = """
sys.argv[0] = "ropewalk"
try:
    runpy.run_module("ropewalk", run_name="__main__")
except SystemExit as leaving:
    print("exit", leaving.code or 0)
"""


def save(config: dict[str, Any], name: str = "model") -> str:
    Path(name).mkdir(exist_ok=True)
    Path(name, "config.json").write_text(json.dumps(config), encoding="utf-8")
    return name


def test_verdict_first_then_the_table(ropewalk: Ropewalk) -> None:
    answer = ropewalk("inspect", save(llama(rope_scaling=YARN), "Llama-YaRN"))
    assert answer.code == 0
    lines = answer.stdout.splitlines()
    assert lines[0].startswith("Llama-YaRN")
    assert "decoder, 2 layers" in lines[0]
    assert "theta 10,000 [config.json:rope_theta]" in lines[0]
    assert "trained 2,048" in lines[1]
    assert "extended 8,192 by yarn x4 [config.json:rope_scaling.factor]" in lines[1]
    assert lines[3].split() == ["engine", "frequencies", "gain", "on", "cos/sin", "gain", "on", "logits", "length"]
    assert lines[4].split() == ["transformers", "5", "=", "plan", "1.1386", "1", "8,192"]
    assert "All six engines agree on frequencies and gains. The YaRN paper's formula differs" in answer.stdout


def test_a_disagreement_is_marked_with_its_reason_and_the_public_issue(ropewalk: Ropewalk) -> None:
    answer = ropewalk("inspect", save(GPT_OSS))
    assert answer.code == 1
    assert "llama.cpp*" in answer.stdout
    assert "* llama.cpp: rounds the ends of YaRN's ramp" in answer.stdout
    assert "vllm#27722" in answer.stdout
    assert "can inspect it but not load it: gpt_oss has a mixture of experts" in answer.stdout
    assert ropewalk("inspect", "model", "--engines", "vllm, transformers5").code == 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("vllm,vlm", "did you mean 'vllm'?"),
        ("ollama", "no engine 'ollama'"),
        ("", "no engine is named"),
        (" , ", "no eng"),
    ],
)
def test_engines_that_do_not_exist_are_a_mistake_of_usage(ropewalk: Ropewalk, given: str, says: str) -> None:
    """An empty variable of a script must not be a green answer."""
    answer = ropewalk("inspect", save(llama()), "--engines", given)
    assert (answer.code, answer.stdout) == (2, "")
    assert says in answer.stderr
    assert "transformers5, transformers4, vllm, llama.cpp" in " ".join(answer.stderr.split())


def test_a_narrow_terminal_gets_each_value_with_its_heading(
    ropewalk: Ropewalk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(PHI3)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes any output for a terminal
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "60")
    lines = ropewalk("inspect", path).stdout.splitlines()
    start = lines.index("  vLLM")
    assert lines[start + 1 : start + 6] == [
        "    frequencies      = plan to 4,096, its end",
        "    gain on cos/sin  1.1902",
        "    gain on logits   1",
        "    length           4,096",
        "    decides          at start, by max_model_len",
    ]
    table = lines[lines.index("  transformers 5") : start]
    assert max(map(len, table)) <= 60
    monkeypatch.setenv("COLUMNS", "200")
    assert "  engine          frequencies" in ropewalk("inspect", path).stdout


def test_a_scaling_of_some_layers_is_said_of_those(ropewalk: Ropewalk) -> None:
    """OLMo 3 scales its full layers and not its sliding ones."""
    sizes = {"num_hidden_layers": 8, "num_attention_heads": 4, "hidden_size": 256, "max_position_embeddings": 8192}
    config = {"model_type": "olmo3", **sizes, "sliding_window": 1024, "rope_theta": 5e5, "rope_scaling": YARN}
    answer = ropewalk("inspect", save(config))
    assert "extended 8,192 by yarn x4 [config.json:rope_scaling.factor] in 2 of 8 layers" in answer.stdout
    assert "in 2 of 2 layers" not in ropewalk("inspect", save(llama(rope_scaling=YARN))).stdout


def test_an_error_says_which_of_two_configs_it_is_about(ropewalk: Ropewalk) -> None:
    base, broken = save(llama(), "base"), save(llama(rope_theta="many"), "tuned")
    for one, other in ((broken, base), (base, broken)):
        answer = ropewalk("inspect", one, "--against", other)
        assert answer.code == 3
        assert answer.stderr.startswith("Error: tuned/config.json: rope_theta")


def test_json_is_the_same_as_data(ropewalk: Ropewalk) -> None:
    answer = ropewalk("inspect", save(DEEPSEEK), "--json")
    assert answer.code == 0
    assert answer.data["agree"]
    assert answer.data["refusal"].startswith("deepseek_v3 has multi-head latent attention")
    assert answer.data["engines"]["vllm"]["layers"][0]["logit_gain"] == pytest.approx(1.8739, abs=1e-4)


def test_quiet_is_the_verdict_alone(ropewalk: Ropewalk) -> None:
    assert ropewalk("inspect", save(llama()), "--quiet").stdout == "All six engines agree on frequencies and gains.\n"
    answer = ropewalk("inspect", save(PHI3), "-q")
    assert answer.code == 1
    assert len(answer.stdout.splitlines()) == 1


def test_to_and_layers(ropewalk: Ropewalk) -> None:
    answer = ropewalk("inspect", save(GPT_OSS), "--to", "262144", "--layers")
    rows = [line.split()[0] for line in answer.stdout.splitlines() if line.startswith("  ") and line.strip()]
    for scaling in ("none", "linear", "ntk", "dynamic", "yarn", "llama3"):
        assert scaling in rows
    assert "To reach 262,144 tokens from 4,096:" in answer.stdout
    assert "rotated" in answer.stdout


def test_lengths_as_people_write_them(ropewalk: Ropewalk) -> None:
    path = save(llama())
    answer = ropewalk("inspect", path, "--to", "128k")
    assert answer.code == 0
    assert "To reach 128,000 tokens from 8,192:" in answer.stdout
    assert "--max-model-len 128000" in answer.stdout
    assert (
        "llama-server -m MODEL.gguf -c 128000 --rope-scaling yarn --rope-scale 15.625 --yarn-orig-ctx 8192"
        in answer.stdout
    )
    assert ropewalk("inspect", path, "--to", "1M", "--json").data["to"] == 1_000_000
    answer = ropewalk("inspect", path, "--to", "long")
    assert answer.code == 2
    assert "'long' is not an amount; write" in " ".join(answer.stderr.split())
    within = ropewalk("inspect", path, "--to", "4096")
    assert within.code == 0
    assert "4,096 is within the stated length, 8,192 [config.json:max_position_embeddings]" in within.stdout


def test_against_another(ropewalk: Ropewalk) -> None:
    base, tuned = save(llama(), "base"), save(llama(rope_theta=5e5), "tuned")
    assert ropewalk("inspect", base, "--against", base).code == 0
    answer = ropewalk("inspect", tuned, "--against", base)
    assert answer.code == 1
    assert "base, layers 0-1: 500,000 [config.json:rope_theta] here, 10,000 there" in answer.stdout


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (
            {
                "model_type": "bert",
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "hidden_size": 64,
                "max_position_embeddings": 512,
            },
            "learned table of 512 positions",
        ),
        (
            {
                "model_type": "t5",
                "num_layers": 2,
                "num_heads": 4,
                "d_model": 64,
                "d_kv": 16,
                "relative_attention_num_buckets": 32,
            },
            "T5 bias, 32 buckets up to distance 128",
        ),
        ({"model_type": "bloom", "n_layer": 2, "n_head": 4, "hidden_size": 64}, "ALiBi"),
    ],
)
def test_models_that_do_not_rotate(ropewalk: Ropewalk, config: dict[str, Any], words: str) -> None:
    answer = ropewalk("inspect", save(config))
    assert answer.code == 0
    assert words in answer.stdout
    assert "Nothing rotates here" in answer.stdout
    assert "gain on" not in answer.stdout
    answer = ropewalk("inspect", "model", "--to", "4096")
    assert answer.code == 0
    assert "no scaling applies" in answer.stdout


@pytest.mark.parametrize("path", ["nowhere", "nowhere/config.json", "-"])
def test_bad_input(ropewalk: Ropewalk, path: str) -> None:
    answer = ropewalk("inspect", path)
    assert answer.code == 3
    assert "Traceback" not in answer.stderr


def test_a_file_cannot_write_to_the_terminal(ropewalk: Ropewalk) -> None:
    name = "\x1b[2J\x9b31m\u202ename\u2028\r"
    config = llama(_name_or_path=name, max_seq_len="\x1b]0;title\x07")
    Path("config.json").write_text(json.dumps(config), encoding="utf-8")
    for arguments in ((), ("--json",), ("--layers",), ("--quiet",)):
        shown = ropewalk("inspect", "config.json", *arguments).stdout
        assert shown
        assert not set(shown) & set("\x1b\x9b\x07\r\u202e\u2028")
    assert clean("plain text, \u00e9t\u00e9 \u4f4d\u7f6e") == "plain text, \u00e9t\u00e9 \u4f4d\u7f6e"


def test_errors_quote_a_file_without_its_control_characters(ropewalk: Ropewalk) -> None:
    Path("config.json").write_text(json.dumps({"model_type": "\x1b[2Jllama"}), encoding="utf-8")
    answer = ropewalk("inspect", "config.json")
    assert answer.code == 3
    assert "\x1b" not in answer.stderr


@pytest.mark.parametrize("config", [llama(rope_scaling=YARN), PHI3, DEEPSEEK], ids=["llama", "phi3", "deepseek"])
def test_answers_in_two_seconds_without_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]
) -> None:
    monkeypatch.chdir(tmp_path)
    path = save(config)
    took = []
    for _ in range(2):  # the first run may compile
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = run_without_torch(COMMAND, "inspect", path, "--to", "1000000")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Of the processor: beside other work the clock on the wall says little.
        took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert "exit" in done.stdout, done.stderr
        assert "Traceback" not in done.stderr
    assert min(took) < 2.0


def test_a_key_that_is_not_understood_is_named_after_the_plan(ropewalk: Ropewalk) -> None:
    chunks = {"chunk_size": 1024, "local_size": 256, "original_max_position_embeddings": 2048}
    answer = ropewalk("inspect", save(llama(dual_chunk_attention_config=chunks, some_new_gate=1)))
    assert answer.code == 1
    lines = answer.stdout.splitlines()
    assert "RoPE" in lines[0]
    assert any("dual_chunk_attention_config is not understood" in line for line in lines[1:3])
    assert "- keys not looked at: some_new_gate" in lines
    data = ropewalk("inspect", "model", "--json").data
    assert list(data["not_understood"]) == ["dual_chunk_attention_config"]
    assert data["not_looked_at"] == ["some_new_gate"]
    assert ropewalk("inspect", save(llama(some_new_gate=1))).code == 0
