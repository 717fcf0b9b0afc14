"""What `ropewalk inspect` says of MLX-LM and SGLang, against their own classes, on every published config of the tests.

    MLX_PYTHON=mlx/bin/python SGLANG_PYTHON=sglang/bin/python python -m campaigns.engine_rotations [--json]

Each config is asked for as it was published, as transformers 5 saves it, and, where it is plain, with a YaRN; where all
its layers are alike, with two of them. Then each is asked for with the keys that `inspect --to` prints for four times
its length, `PASTED` of them; and of configs with a text part, SGLang with the keys in one of both places alone. The
bars: gains are within 1e-6 of the engine's, relatively, frequencies within 2e-6 (`TURNED` says why); SGLang's windows
are the same; where an engine refuses a config, inspect says so, and the other way round; and what is printed gives the
wanted frequencies. The interpreters are those of environments made so, MLX-LM with its dependencies, and SGLang with
what its models import (`rotation_runners.py` replaces the rest):

    pip install mlx-lm==0.32.2 "mlx[cpu]==0.32.4"
    pip install torch==2.13.0 && pip install --no-deps sglang==0.5.23 && pip install transformers==5.19.0 msgspec \\
        psutil orjson requests pybase64 starlette pillow pyzmq fastapi einops compressed-tensors==0.18.0

The answers, shortened, are written to tests/checkpoints/engines/rotations.json, which every run of the tests compares.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks import bars
from ropewalk.checkpoints.engines.besides import ASPECTS

PUBLISHED, WHOLE = Path("tests/checkpoints/published"), Path("tests/checkpoints/whole")
ANSWERS = Path("tests/checkpoints/engines/rotations.json")
NEAR, TURNED = 1e-6, 2e-6
"""Relatively, of gains and of frequencies: MLX's kernel raises the base to a power of 2 in float32, whose exponent of
up to 27 is off by 2**-20 at most, and the frequency then by ln 2 times that, relatively, before it is rounded."""
SLOWEST = 1e-9
"""Frequencies below this turn by less than a float32's last digit in a million tokens."""
YARN = {"rope_type": "yarn", "type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}
NOT_ASKED = "not asked"
"""How an answer begins where the engine needs code that comes with the checkpoint."""
PASTED = ("ntk", "yarn")
PYTHONS = {"mlx": "MLX_PYTHON", "sglang": "SGLANG_PYTHON"}
NAMES = {"mlx": "MLX-LM", "sglang": "SGLang"}
PACKAGES = {"mlx": ("mlx-lm", "mlx"), "sglang": ("sglang", "transformers", "torch")}


def configs() -> dict[str, dict[str, Any]]:
    """By the name of a published config, and how it was changed."""
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(PUBLISHED.glob("*.json")):
        config = json.loads(file.read_text(encoding="utf-8"))
        if not resolves(config):
            continue
        config = shortened({**config, "architectures": config.get("architectures") or [usual_class(config)]})
        variants = {"": config, ", saved by transformers 5": saved(config), ", YaRN": stretched(config)}
        found |= {f"{file.stem}{how}": one for how, one in variants.items() if one is not None}
    return found | spelled_apart()


def spelled_apart() -> dict[str, dict[str, Any]]:
    """Rows that spell positions in ways of their own, and engines whose classes were asked for them."""
    bases = [0, 10_000.0, 10_000.0, 500_000.0]
    granite = {
        "hidden_size": 256,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0},
        "layer_rope_theta": bases,
        "sliding_window": 128,
    }
    return {
        "granite_swa": {**granite, "model_type": "granite_swa", "architectures": ["GraniteSWAForCausalLM"]},
        "granitemoe_swa": {**granite, "model_type": "granitemoe_swa", "architectures": ["GraniteMoeSWAForCausalLM"]},
        "minimax-m3": json.loads((WHOLE / "minimax-m3.json").read_text(encoding="utf-8")),
    }


def resolves(config: dict[str, Any]) -> bool:
    from ropewalk.checkpoints.errors import BadInput
    from ropewalk.checkpoints.resolve.hf import resolve

    try:
        return bool(resolve(config, strict=False).plans)
    except BadInput:
        return False


def usual_class(config: dict[str, Any]) -> str:
    from ropewalk.checkpoints.engines.facts import Facts
    from ropewalk.checkpoints.resolve.hf import resolve

    return Facts(resolve(config, strict=False)).architecture


def shortened(config: dict[str, Any]) -> dict[str, Any]:
    """Two layers, where all are alike."""
    from ropewalk.checkpoints.resolve.hf import resolve

    text = config.get("text_config", config)
    plans = resolve(config, strict=False).plans.values()
    if any(len(set(plan.layers)) > 1 for plan in plans) or not isinstance(text.get("num_hidden_layers"), int):
        return config
    lists = {key: value[:2] for key, value in text.items() if key in ("layer_types", "no_rope_layers") and value}
    short = {**text, "num_hidden_layers": 2, **lists}
    return {**config, "text_config": short} if "text_config" in config else short


def saved(config: dict[str, Any]) -> dict[str, Any] | None:
    from transformers import AutoConfig, logging
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    logging.set_verbosity_error()
    if config["model_type"] not in CONFIG_MAPPING_NAMES:
        return None
    try:
        made = AutoConfig.for_model(**json.loads(json.dumps(config)))
    except (KeyError, ValueError):
        return None
    told = json.loads(made.to_json_string(use_diff=False))
    return {**told, "architectures": config.get("architectures") or told.get("architectures")}


def stretched(config: dict[str, Any]) -> dict[str, Any] | None:
    from ropewalk.checkpoints.resolve.hf import resolve

    text = config.get("text_config", config)
    old = text.get("rope_scaling") or {}
    sections = {key: value for key, value in old.items() if key.startswith("mrope_")}
    changed = {**text, "rope_scaling": {**YARN, **sections}}
    changed = {**config, "text_config": changed} if "text_config" in config else changed
    if "rope_scaling" not in text or not resolves(changed):
        return None
    return None if any(layer.scaling for layer in resolve(config, strict=False).plan.layers) else changed


@dataclass(frozen=True, kw_only=True)
class Pasted:
    """A config with what inspect --to prints for one engine and scaling, and the numbers that its layers must have."""

    config: dict[str, Any]
    keys: dict[str, Any] | None
    """For SGLang's command line; MLX-LM's are in the config."""
    numbers: tuple[Any, ...]
    """Of each layer; None for one that does not rotate."""
    whole: bool = True
    """Whether all of it is given: a part of it is asked for to see that it is not enough."""

    def wrong(self, answer: Any, *, whole: bool = True) -> list[str]:
        if not self.whole:
            return []
        if isinstance(answer, str):  # no class: it runs transformers' own code, which has tests of its own
            return [] if answer.startswith((NOT_ASKED, "no class")) else [f"it says {answer[:120]}"]
        found = []
        for one in answer:
            wanted = self.numbers[one["layers"][0] if whole else one["layers"][1]]
            if wanted is None:
                continue
            ours = list(wanted.past)
            pairs = zip(ours if whole else few(ours), one["frequencies"], strict=True)
            if (far := max(apart(*pair) for pair in pairs)) > TURNED:
                found.append(f"frequencies are {far:.1e} apart")
            if apart(wanted.rotary_gain, one["gain"]) > NEAR:
                found.append(f"gain {wanted.rotary_gain} and {one['gain']}")
        return found if answer else ["it rotates nothing"]


def pasted(engine: str) -> dict[str, Pasted]:
    """Every published config with what inspect --to prints for it, and for SGLang the same keys beside text_config."""
    from ropewalk.checkpoints.inspect.changes import Wanted
    from ropewalk.checkpoints.inspect.lengths import candidates, reach, scaled_layer
    from ropewalk.checkpoints.resolve.hf import resolve

    found: dict[str, Pasted] = {}
    for file in sorted(PUBLISHED.glob("*.json")):
        config = json.loads(file.read_text(encoding="utf-8"))
        if not resolves(config):
            continue
        config = {**config, "architectures": config.get("architectures") or [usual_class(config)]}
        resolved = resolve(config, strict=False)
        plan = resolved.plan
        answer = reach(resolved, 4 * (plan.trained or plan.longest or 2048))
        for one in answer.stretches:
            text = next((each.text for each in one.overrides if each.engine == NAMES[engine]), None)
            layer = scaled_layer(plan)
            if one.scaling not in PASTED or text is None or layer is None or answer.start is None:
                continue
            wanted = Wanted(resolved, candidates(plan, layer, answer.start, answer.to)[one.scaling], answer.to)
            numbers = tuple(wanted.numbers(each) if each.base is not None else None for each in plan.layers)
            name = f"{file.stem}, {one.scaling}"
            if engine == "mlx":
                found[name] = Pasted(config=put(shortened(config), json.loads(text)), keys=None, numbers=numbers)
                continue
            words = shlex.split(text)
            keys = json.loads(words[words.index("--json-model-override-args") + 1])
            found[name] = Pasted(config=shortened(config), keys=keys, numbers=numbers)
            if "text_config" in keys:
                inner = keys["text_config"]
                apart = {"beside text_config": inner, "within text_config": {"text_config": inner}}
                for place, given in apart.items():
                    found[f"{name}, {place} alone"] = replace(found[name], keys=given, whole=False)
    return found


def put(config: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """The keys in the text part, where there is one."""
    text = {**config.get("text_config", config), **keys}
    return {**config, "text_config": text} if "text_config" in config else text


def ask(
    engine: str, python: str, asked: dict[str, dict[str, Any]], overrides: dict[str, Any] | None = None
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        job, answer = Path(folder, "job.json"), Path(folder, "answer.json")
        given = [(overrides or {}).get(name) for name in asked]
        job.write_text(json.dumps({"configs": list(asked.values()), "overrides": given}))
        script = Path(__file__).with_name("rotation_runners.py")
        command = [python, str(script), engine, str(job), str(answer)]
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            timeout=3000,
            cwd=folder,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        return dict(zip(asked, json.loads(answer.read_text()), strict=True))


def brief(answer: Any) -> Any:
    """Of each kind of layer: how many, the first of them, the last, and a few numbers."""
    if isinstance(answer, str):
        return answer[:60]
    return [
        {
            "layers": [len(one["layers"]), one["layers"][0], one["layers"][-1]],
            "width": 2 * len(one["frequencies"]),
            "frequencies": few(one["frequencies"]),
            "stretched": few(one["stretched"]),
            "gain": one["gain"],
            "scale": one["scale"],
            "window": one.get("window"),
        }
        for one in answer
    ]


def few(frequencies: list[float]) -> list[float]:
    return [frequencies[1], frequencies[len(frequencies) // 2], frequencies[-1]]


class Told:
    """What inspect says of one config and engine, beside an answer."""

    def __init__(self, config: dict[str, Any], engine: str) -> None:
        from ropewalk.checkpoints.engines import readings
        from ropewalk.checkpoints.resolve.hf import resolve

        self.resolved = resolve(config, strict=False)
        self.reading = readings(self.resolved)[engine]
        self.engine = engine

    def of(self, number: int) -> Any:
        return next((one for one in self.reading.layers if number in one.numbers), None)

    def wrong(self, answer: Any, *, whole: bool = True) -> list[str]:
        """In what they differ; numbers of a shortened answer are three of each."""
        if isinstance(answer, str) and answer.startswith(NOT_ASKED):
            return []
        if self.reading.unknown == ASPECTS:
            return []  # its code for such a row was not read, which inspect says
        through = self.engine == "sglang" and "transformers' own" in self.reading.version
        if through or (not self.reading.layers and self.reading.refusal is None):
            return []  # transformers' own code, which has tests of its own; or nothing that rotates
        if isinstance(answer, str) or self.reading.refusal is not None:
            same = isinstance(answer, str) == (self.reading.refusal is not None)
            return [] if same else [f"{self.reading.refusal or 'loads'}, and it says {str(answer)[:120]}"]
        found = []
        seen = 0
        for one in answer:
            told = self.of(one["layers"][0] if whole else one["layers"][1])
            if told is None:
                continue
            seen += 1
            for name, ours in (("frequencies", told.frequencies), ("stretched", told.stretched)):
                theirs = one[name]
                pairs = list(zip(ours if whole else few(list(ours)), theirs, strict=False))
                count = len(ours) if whole else 2 * len(ours)
                if count != (len(theirs) if whole else one["width"]):
                    found.append(f"{name}: {len(ours)} of ours")
                elif (far := max(apart(*pair) for pair in pairs)) > TURNED:
                    found.append(f"{name} are {far:.1e} apart")
            if apart(told.rotary_gain, one["gain"]) > NEAR:
                found.append(f"gain {told.rotary_gain} and {one['gain']}")
            heads = self.latent()
            if heads and apart(told.logit_gain, one["scale"] * heads**0.5) > NEAR:
                found.append(f"gain on scores {told.logit_gain} and {one['scale'] * heads**0.5}")
            window = self.window(one["layers"][0] if whole else one["layers"][1])
            read = self.engine == "sglang" and "windows" not in self.reading.unknown and not self.irope()
            if read and window != one["window"]:
                found.append(f"window {window} and {one['window']}")
        return found if seen else ["none of its layers is one of ours"]

    def window(self, number: int) -> int | None:
        return None if self.reading.besides is None else self.reading.besides.windows[number]

    def irope(self) -> bool:
        """Llama 4's chunks are no window of its attention class."""
        return "attention_chunk_size" in json.dumps(dict(self.resolved.config))

    def latent(self) -> int:
        config = self.resolved.config
        return int(config.get("qk_nope_head_dim") or 0) and config["qk_nope_head_dim"] + config["qk_rope_head_dim"]


def apart(ours: float, theirs: float) -> float:
    """Relatively; what turns by less than nothing that a float32 shows is equal."""
    most = max(abs(ours), abs(theirs))
    return 0.0 if most < SLOWEST else abs(ours - theirs) / most


def run(rounds: int) -> dict[str, Any]:
    asked = configs()
    kept: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8")) if ANSWERS.is_file() else {}
    checked: dict[str, Any] = {}
    missing: dict[str, str] = {}
    measured: dict[str, Any] = {}
    versions: dict[str, str] = {}
    for engine, variable in PYTHONS.items():
        if not (python := os.environ.get(variable)):
            missing[engine] = f"{variable} does not name an interpreter that has it"
            continue
        answers = ask(engine, python, asked)
        wrong = {name: found for name, one in asked.items() if (found := Told(one, engine).wrong(answers[name]))}
        loaded = [name for name, one in answers.items() if not isinstance(one, str)]
        kept[engine] = {name: brief(one) for name, one in answers.items()}
        checked[f"{engine}: configs that inspect says something else of"] = bars.bar(len(wrong), 0, at_least=False)
        printed = pasted(engine)
        told = ask(
            engine,
            python,
            {name: one.config for name, one in printed.items()},
            {name: one.keys for name, one in printed.items()},
        )
        other = {name: found for name, one in printed.items() if (found := one.wrong(told[name]))}
        kept[f"{engine} pasted"] = {name: brief(one) for name, one in told.items()}
        checked[f"{engine}: what inspect --to prints does something else"] = bars.bar(len(other), 0, at_least=False)
        departs = [name for name in loaded if Told(asked[name], engine).reading.disagrees]
        unasked = [name for name, one in answers.items() if isinstance(one, str) and one.startswith(NOT_ASKED)]
        counts = {"asked": len(asked) - len(unasked), "built": len(loaded), "not asked": unasked}
        counts["pasted"] = len(printed)
        measured[engine] = {**counts, "departs": departs, "wrong": wrong | other}
        versions |= {name: version(python, name) for name in PACKAGES[engine]}
    ANSWERS.write_text(json.dumps(kept, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    return {"bars": checked, "measured": measured, "not run": missing, "versions": versions}


def version(python: str, package: str) -> str:
    code = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
    return subprocess.run([python, "-c", code, package], capture_output=True, text=True, check=False).stdout.strip()


if __name__ == "__main__":
    sys.exit(bars.main(__doc__, run, rounds=1))
