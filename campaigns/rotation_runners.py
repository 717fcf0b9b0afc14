"""Asks an engine's own model classes how they rotate, without weights; for campaigns/engine_rotations.py.

    python rotation_runners.py ENGINE JOB.json ANSWER.json          ENGINE: mlx, sglang

A job is {"configs": [...], "overrides": [...]}, of which each override is an object for SGLang's
--json-model-override-args or null; an answer is, for each config, the error that its classes raise or a list of
{"layers", "frequencies", "stretched", "gain", "scale", "window"}: what position 1 is turned by, in a text within the
trained length and in one past it, what it is multiplied by, the factor of the scores, and of SGLang the window. Stands
alone: engines live in environments of their own.

MLX-LM builds whole models, whose arrays are not computed before they are used. Of SGLang, its models, config classes
and rotary classes are imported; its layers, kernels and platforms are replaced by stubs, since most need a GPU.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import json
import math
import pkgutil
import re
import sys
import tempfile
import types
from pathlib import Path
from typing import Any, ClassVar

CUT = 64
"""Rows of a table whose length no frequency depends on."""


def mlx(job: dict[str, Any]) -> list[list[dict[str, Any]] | str]:
    import mlx.core as mx
    from mlx_lm.utils import _get_classes

    mx.set_default_device(mx.cpu)
    answers: list[list[dict[str, Any]] | str] = []
    for config in job["configs"]:
        try:
            model_class, arguments = _get_classes(config)
            answers.append(_mlx_rotations(model_class(arguments.from_dict(_sized(config, arguments, model_class)))))
        except Exception as error:  # whatever it says, it does not read the config
            answers.append(f"{type(error).__name__}: {error}"[:200])
    return answers


def _mlx_rotations(model: Any) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    modules = dict(model.named_modules())
    for name, module in modules.items():
        place = re.search(r"\.(\d+)\.([\w.]*)$", name)
        if place is None or not name.endswith(".rope") or "index" in name or type(module).__name__ == "NoPE":
            continue
        owner = modules[name.rpartition(".")[0]]
        key, told = _mlx_rotation(module, float(getattr(owner, "scale", 0.0)))
        found.setdefault(key, {"layers": [], **told})["layers"].append(int(place[1]))
    for one in found.values():
        one["layers"].sort()
    return list(found.values())


def _sized(config: dict[str, Any], arguments: Any, model_class: Any) -> dict[str, Any]:
    """Sizes that are not about positions, and that a shortened config does not state."""
    sizes = {
        "vocab_size": 64,
        "intermediate_size": 64,
        "moe_intermediate_size": 64,
        "shared_intermediate_size": 64,
        "attention_bias": False,
        "use_qkv_bias": False,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "mlp_only_layers": [],
        "decoder_sparse_step": 1,
        "norm_topk_prob": True,
        "scoring_func": "sigmoid",
        "topk_method": "noaux_tc",
        "first_k_dense_replace": 1,
        "use_qk_norm": False,
        "mlp_bias": False,
    }
    filled = dict(config)
    for parts in (filled, filled.get("text_config")):
        if not isinstance(parts, dict):
            continue
        known = _text_arguments(model_class, parts) or arguments
        known = arguments if parts is filled and "text_config" in config else known
        for name, field in inspect.signature(known).parameters.items():
            about_positions = re.search(r"rope|rotary|theta|head_dim|layer_types|window|max_position|pattern", name)
            if (
                name in parts
                or name == "text_config"
                or field.default is not inspect.Parameter.empty
                or about_positions
            ):
                continue
            if name in sizes:
                parts[name] = sizes[name]
            elif name == "num_key_value_heads":
                parts[name] = parts["num_attention_heads"]
            elif "eps" in name:
                parts[name] = 1e-6
            else:
                parts[name] = 1.0 if re.search(r"multiplier|scaling|scale|factor", name) else 2
    return filled


def _text_arguments(model_class: Any, text: dict[str, Any]) -> Any:
    """The arguments of the file that a model with several parts gives its text part to."""
    module = sys.modules[model_class.__module__]
    names = re.findall(r"(\w+)\.ModelArgs\.from_dict\(args\.text_config\)", inspect.getsource(module))
    if not names:
        return getattr(module, "TextArgs", None) or getattr(module, "TextConfig", None)
    name = text.get("model_type") if text.get("model_type") in names else names[-1]
    return getattr(module, name).ModelArgs


def _mlx_rotation(module: Any, scale: float) -> tuple[str, dict[str, Any]]:
    import mlx.core as mx

    attributes = {key: value for key, value in vars(module).items() if isinstance(value, int | float | bool | str)}
    arrays = {key: value.tolist() for key, value in module.items() if isinstance(value, mx.array)}
    key = json.dumps([type(module).__name__, attributes, arrays, scale], sort_keys=True, default=str)
    if key in _SEEN:
        return key, _SEEN[key]
    width = getattr(module, "dims", None) or getattr(module, "dim", None) or 2 * len(module._freqs)
    # Every unit vector as a head of its own, at position 1.
    turned = module(mx.eye(width)[None, :, None, :], offset=1)[0, :, 0, :]
    frequencies, gain = _of_matrix(turned.tolist())
    stretched = frequencies
    if type(module).__name__.startswith("Dynamic"):
        length = 2 * module.max_position_embeddings
        ones = mx.broadcast_to(mx.array([1.0] * (width // 2) + [0.0] * (width // 2)), (1, 1, length, width))
        row = module(ones)[0, 0, 1].tolist()
        half = width // 2
        stretched = [math.atan2(row[half + i], row[i]) for i in range(half)]
    told = {"frequencies": frequencies, "stretched": stretched, "gain": gain, "scale": scale}
    _SEEN[key] = told
    return key, told


_SEEN: dict[str, dict[str, Any]] = {}


def _of_matrix(rows: list[list[float]]) -> tuple[list[float], float]:
    """Angles and gain of a rotation of unit vectors, whichever features it pairs."""
    angles, gain, seen = [], 1.0, set()
    for i, row in enumerate(rows):
        if i in seen:
            continue
        partner = max((j for j in range(len(row)) if j != i and j not in seen), key=lambda j: abs(row[j]))
        half = len(row) // 2
        if row[partner] == 0:  # too slow to see, or not turned: its neighbour by the layout
            partner = i + half if 1 not in seen else i + 1
        seen |= {i, partner}
        angles.append(math.atan2(row[partner], row[i]))
        gain = math.hypot(row[i], row[partner])
    return angles, gain


def sglang(job: dict[str, Any]) -> list[list[dict[str, Any]] | str]:
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    for name in ("normal_", "uniform_", "kaiming_uniform_", "xavier_uniform_", "trunc_normal_", "zeros_", "ones_"):
        setattr(torch.nn.init, name, lambda weight, *_, **__: weight)  # of vision parts; nothing is computed with them
    sys.meta_path.insert(0, _Stubs())
    factory = importlib.import_module("sglang.srt.layers.rotary_embedding.factory")
    rotary = importlib.import_module("sglang.srt.layers.rotary_embedding")
    factory.get_rope = rotary.get_rope = _Seen.rotates(factory.get_rope)
    importlib.import_module("sglang.srt.models")
    classes = _entry_classes()
    registry = types.ModuleType("sglang.srt.models.registry")
    registry.ModelRegistry = types.SimpleNamespace(resolve_model_cls=lambda name: (_class(classes, name), name))
    sys.modules[registry.__name__] = sys.modules["sglang.srt.models"].registry = registry
    answers: list[list[dict[str, Any]] | str] = []
    override = _own_override()
    for config, keys in zip(job["configs"], job["overrides"], strict=True):
        if config["model_type"] not in (*transformers.CONFIG_MAPPING, "kimi_k2"):
            answers.append("not asked: its config class comes with the checkpoint, and that is not run")
            continue
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "config.json").write_text(json.dumps(config))
            factory._ROPE_DICT.clear()
            _Seen.layers, _Seen.rotation, model, failure = {}, None, None, ""
            try:
                read = override(_flat(_read(config, folder)), keys)
                name = config["architectures"][0]
                if name not in classes:
                    answers.append(f"no class {name}")
                    continue
                model = _class(classes, name)(read)
            except Exception as error:  # after its layers, that does not matter
                failure = f"{type(error).__name__}: {error}"[:300]
        answers.append(_tables(model) if _Seen.layers or not failure else failure)
    return answers


def _root() -> Path:
    found = importlib.util.find_spec("sglang")
    assert found is not None
    assert found.submodule_search_locations
    return Path(found.submodule_search_locations[0], "srt")


def _read(config: dict[str, Any], folder: str) -> Any:
    """By the config class of its own registry, where it has one for the model type; else by transformers'."""
    import ast

    import transformers

    root = _root()
    registry = (root / "utils/hf_transformers/common.py").read_text(encoding="utf-8")
    listed = re.search(r"_CONFIG_REGISTRY.*?\[\n(.*?)\n    \]", registry, re.S)
    assert listed is not None
    names = re.findall(r"\w+", listed[1])
    for file in sorted((root / "configs").glob("*.py")):
        if f'model_type = "{config["model_type"]}"' not in file.read_text(encoding="utf-8"):
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name in names:
                own = getattr(importlib.import_module(f"sglang.srt.configs.{file.stem}"), node.name)
                if own.model_type == config["model_type"]:
                    return own.from_pretrained(folder)
    if config["model_type"] == "kimi_k2":  # as its registry: DeepSeek V3's class under another name
        return transformers.DeepseekV3Config.from_pretrained(folder)
    return transformers.AutoConfig.from_pretrained(folder)


def _own_override() -> Any:
    """The statement of its get_config that applies --json-model-override-args, as it stands there."""
    import ast

    import transformers

    source = ast.parse((_root() / "utils/hf_transformers/config.py").read_text(encoding="utf-8"))
    statement = next(
        part
        for node in source.body
        if isinstance(node, ast.FunctionDef) and node.name == "get_config"
        for part in node.body
        if isinstance(part, ast.If) and ast.unparse(part.test) == "model_override_args"
    )
    code = compile(ast.Module([statement], []), "get_config", "exec")
    deepseek = type("DeepseekV41Config", (), {})  # none of the configs is one
    names = {"PretrainedConfig": transformers.PretrainedConfig, "DeepseekV41Config": deepseek}

    def override(config: Any, keys: dict[str, Any] | None) -> Any:
        exec(code, {**names, "config": config, "model_override_args": keys})  # noqa: S102
        return config

    return override


def _class(classes: dict[str, str], name: str) -> Any:
    return getattr(importlib.import_module(classes[name]), name)


def _flat(config: Any) -> Any:
    """As its get_config does: what the text part has and the config has not is the config's too. Gemma 4's two widths
    and Qwen3-Next's layers have other names in its own config classes."""
    text = config.get_text_config()
    for part in (config, text):
        if getattr(part, "layer_types", None) and not hasattr(part, "layers_block_type"):
            part.layers_block_type = [one.replace("full_attention", "attention") for one in part.layer_types]
    if getattr(text, "is_heterogeneous", False):  # Gemma 4: a width for sliding layers and another for full ones
        widths = {kind: one.head_dim for kind, one in zip(text.layer_types, text.per_layer_config, strict=True)}
        text.per_layer_config = None
        text.head_dim, text.swa_head_dim = widths["full_attention"], widths["sliding_attention"]
    if hasattr(getattr(config, "vision_config", None), "in_channels"):
        config.vision_config.in_chans = config.vision_config.in_channels
    for key, value in {**vars(text), "encoder_only": False, "language_only": True}.items():
        if not hasattr(config, key) and value is not None:
            setattr(config, key, value)
    return config


def _entry_classes() -> dict[str, str]:
    """The classes that its registry would find, with their modules, without importing them."""
    import ast

    root = _root()
    classes = {}
    for module in pkgutil.iter_modules([str(root / "models")]):
        text = root / "models" / f"{module.name}.py"
        if not text.is_file():
            continue
        for node in ast.parse(text.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "EntryClass":
                names = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else [node.value]
                classes |= {one.id: f"sglang.srt.models.{module.name}" for one in names if isinstance(one, ast.Name)}
    return classes


@contextlib.contextmanager
def _short_tables() -> Any:
    """YaRN's ramp depends on the lengths, and the rows of its table do not."""
    import torch

    arange = torch.arange
    torch.arange = lambda end, *given, **named: arange(
        CUT if not given and "end" not in named and end > CUT**2 else end, *given, **named
    )
    try:
        yield
    finally:
        torch.arange = arange


class _Seen:
    """What a model asks for while it is built: the rotation made last, and the layers whose attention came after it."""

    rotation: Any = None
    layers: ClassVar[dict[int, tuple[Any, float, int | None]]] = {}

    @classmethod
    def rotates(cls, make: Any) -> Any:
        def recorded(*given: Any, **named: Any) -> Any:
            asked = inspect.signature(make).bind(*given, **named)
            scaling = asked.arguments.get("rope_scaling") or {}
            kind = scaling.get("rope_type", scaling.get("type", "default"))
            if kind in ("default", "llama3", "linear", "proportional"):
                asked.arguments["max_position"] = min(asked.arguments["max_position"], CUT)
            with _short_tables() if "yarn" in kind else contextlib.nullcontext():
                cls.rotation = make(*asked.args, **asked.kwargs)
            return cls.rotation

        return recorded

    @classmethod
    def attends(cls, heads: Any = 0, width: Any = 0, scaling: Any = 0.0, *given: Any, **named: Any) -> None:
        number = named.get("layer_id", given[1] if len(given) > 1 else None)
        if isinstance(number, int) and cls.rotation is not None:
            size = named.get("sliding_window_size")
            window = int(size) + 1 if isinstance(size, int) and size > 0 else None
            cls.layers.setdefault(int(number), (cls.rotation, float(scaling), window))
        cls.rotation = None


def _tables(model: Any) -> list[dict[str, Any]]:
    """Gemma 3's models rotate by transformers' own modules; the tables of its layers are for processors with AMX."""
    shared, sliding = {}, []
    for module in model.modules() if model is not None else ():
        if "rotary_emb_local" in getattr(module, "_modules", {}):
            shared = {False: module.rotary_emb, True: module.rotary_emb_local}
            sliding = [layer.self_attn.is_sliding for layer in module.layers]
    found: dict[str, dict[str, Any]] = {}
    for number, (module, scale, window) in sorted(_Seen.layers.items()):
        told = {**_table(shared[sliding[number]] if shared else module), "scale": scale, "window": window}
        found.setdefault(json.dumps(told), {"layers": [], **told})["layers"].append(number)
    return list(found.values())


def _table(module: Any) -> dict[str, Any]:
    """Of row 1 of the table; LongRoPE's has the short list's rows first, then the long one's."""
    inverse = getattr(module, "inv_freq", None)
    table = getattr(module, "long_short_cos_sin_cache", None)
    if table is not None:
        return {**_row(table, 1), "stretched": _row(table, module.original_max_position_embeddings + 1)["frequencies"]}
    table = getattr(module, "cos_sin_cache", None)
    if table is not None:
        told = _row(table, 1)
    else:
        told = {"frequencies": inverse.tolist(), "gain": float(getattr(module, "attention_scaling", 1.0))}
    return {**told, "stretched": told["frequencies"]}


def _row(table: Any, row: int) -> dict[str, Any]:
    cos, sin = table[row].double().chunk(2)
    gain = float((cos[-1] ** 2 + sin[-1] ** 2) ** 0.5)
    return {"frequencies": [math.atan2(s, c) for c, s in zip(cos.tolist(), sin.tolist(), strict=True)], "gain": gain}


class _Blank(int):
    """A number, a function, a decorator or an object, as it is used: 1 in arithmetic, false in an if."""

    def __new__(cls) -> _Blank:
        return super().__new__(cls, 1)

    def __bool__(self) -> bool:
        return False

    def __call__(self, *given: Any, **named: Any) -> Any:
        return (
            given[0]
            if len(given) == 1 and not named and (inspect.isfunction(given[0]) or inspect.isclass(given[0]))
            else self
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return True if name in ("is_first_rank", "is_last_rank") else self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __iter__(self) -> Any:
        return iter(())

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: Any) -> None:
        return None


class _Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """SGLang's models and rotary embeddings are its own; all else of it, and what it needs, is blank."""

    OWN = re.compile(r"sglang\.srt\.(models|configs\.\w+|layers\.rotary_embedding)\b")
    FOLDERS = ("sglang", "sglang.srt", "sglang.srt.layers", "sglang.srt.models", "sglang.srt.configs")
    BLANK = ("sglang.srt.configs.model_config", "sglang.srt.configs.load_config", "sglang.srt.configs.device_config")
    ABSENT = (
        "triton",
        "sgl_kernel",
        "tvm_ffi",
        "torchvision",
        "timm",
        "decord",
        "flashinfer",
        "deep_gemm",
        "tiktoken",
        "sentencepiece",
    )

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name in self.FOLDERS:
            found = importlib.machinery.PathFinder.find_spec(name, path)
            assert found is not None
            spec = importlib.machinery.ModuleSpec(name, self, is_package=True)
            spec.submodule_search_locations = found.submodule_search_locations
            return spec
        if (self.OWN.match(name) and name not in self.BLANK) or name.partition(".")[0] not in ("sglang", *self.ABSENT):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> Any:
        return None if spec.name in self.FOLDERS[:4] else _blank_module(spec.name)

    def exec_module(self, module: Any) -> None:
        pass


def _blank_module(name: str) -> types.ModuleType:
    from torch import nn

    class Kind(type):
        def __getattr__(cls, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return _Blank()

    class Layer(nn.Module, metaclass=Kind):
        def __init__(self, *_: Any, **__: Any) -> None:
            super().__init__()

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                if name.startswith("__"):
                    raise
                return _Blank()

    class Module(types.ModuleType):
        def __getattr__(self, found: str) -> Any:
            if found.startswith("__"):
                raise AttributeError(found)
            if found in _MADE:
                made: Any = _MADE[found]()
            elif found[:1].isupper() and not found.isupper():
                made = Kind(found, (Layer,), {})
            else:
                made = _Blank()
            if found == "RadixAttention":
                made.__init__ = lambda layer, *given, **named: (Layer.__init__(layer), _Seen.attends(*given, **named))[
                    0
                ]
            setattr(self, found, made)
            return made

    return Module(name)


class _Device(str):
    device = "cuda"


def _own(file: str, name: str) -> Any:
    """One function of SGLang's, without the file it is in."""
    import ast

    root = _root()
    path = root / file
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tree.body = [one for one in tree.body if isinstance(one, ast.FunctionDef) and one.name in (name, "yarn_get_mscale")]
    names: dict[str, Any] = {"math": math, "logger": _Blank()}
    exec(compile(tree, str(path), "exec"), names)  # noqa: S102, a function of the engine that is asked
    return names[name]


def _fused() -> Any:
    from torch import nn

    return nn.Module


_MADE: dict[str, Any] = {
    "make_layers": lambda: _make_layers,
    "make_pp_layers": lambda: lambda *given, **named: _make_layers(*given, **{**named, "pp_rank": 0}),
    "get_pp_indices": lambda: lambda count, *_: (0, count),
    "get_device": lambda: lambda: _Device("cpu"),
    "is_cpu": lambda: lambda: True,
    "publish_role": lambda: lambda: None,
    "add_prefix": lambda: lambda name, prefix: f"{prefix}.{name}" if prefix else name,
    "BaseFusedOp": _fused,
    "get_rope_config": lambda: _own("utils/hf_transformers/common.py", "get_rope_config"),
    "compute_mla_mscale_scaling": lambda: _own("configs/model_config.py", "compute_mla_mscale_scaling"),
    "append_stages": lambda: lambda *_, **__: (_Blank(), _Blank()),
    "resolve_linear_parallel_group": lambda: lambda *_: (_Blank(), 1),
}
"""What a blank would not do for: functions whose result is unpacked or asked for by name."""


def _make_layers(
    count: int, make: Any, pp_rank: Any = None, pp_size: Any = None, prefix: str = "", **named: Any
) -> Any:
    from torch import nn

    layers, failure = nn.ModuleList(), None
    for number in range(count):
        try:
            layers.append(make(idx=number, prefix=f"{prefix}.{number}"))
        except Exception as error:  # in other layers, or after attention, where the stubs do not follow
            failure = error
            layers.append(nn.Module())
    if not _Seen.layers and failure is not None:
        raise failure
    return (layers, 0, count) if pp_rank is not None or named.get("return_tuple") else layers


if __name__ == "__main__":
    engine, job, answer = sys.argv[1:]
    run = {"mlx": mlx, "sglang": sglang}[engine]
    Path(answer).write_text(json.dumps(run(json.loads(Path(job).read_text()))))
