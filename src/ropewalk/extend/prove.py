"""The proof that engines compute from the written checkpoint what was meant: the same likelihoods past the old length.

What was meant is the source under the scaling, computed in float32 by us, or by transformers where we do not load it:
there the scaling is put into its modules as numbers, and the written config has to give the same. A quantised file is
another matter: llama.cpp rounds activations to eight bits there, so its likelihoods of the written file are compared
with its own of the source started with the flags for the same scaling; where there are none, with what was meant, as
closely as the two engines agree on the source at its own length. transformers also chooses tokens across the old
length, with a cache and without. The source as it is, is the control: where the scaling changes its likelihoods by less
than is allowed, the proof says that this text cannot tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ropewalk.checkpoints.files.gguf import GGUF
from ropewalk.checkpoints.resolve.read import read
from ropewalk.evaluate.checkpoint import opened
from ropewalk.evaluate.engines.begun import Begun
from ropewalk.evaluate.passage import Cannot, Engine, Nats, Passage
from ropewalk.extend.greedy import BEFORE, TOKENS, shortfalls
from ropewalk.scaling import Scaling

SCORED = 64
MEAN = {"ropewalk": 1e-6, "transformers": 1e-4, "llama.cpp": 1e-3, "vLLM": 1e-3}
"""Nats a token by which an engine may be off in the mean: exact, float32 angles, and those made one from another."""

LOOSER = 3.0
"""Times what two engines differ by on a quantised source at its own length: allowed where llama.cpp has no flags. On
SmolLM2 a missing gain of YaRN moves the mean by 4e-2 and one token by 1."""
ONE_TOKEN = 5e-3
"""Nats by which a single token may be off: where it is surprising, small differences of angles show."""


class Bounds(NamedTuple):
    bound: float
    most_bound: float


@dataclass(frozen=True, kw_only=True)
class Proof:
    engine: str
    against: str = ""
    """What its likelihoods were compared with."""
    mean: float = 0.0
    """Nats a token."""
    most: float = 0.0
    """Of a single token."""
    bound: float = 0.0
    """Of the mean."""
    most_bound: float = ONE_TOKEN
    moved: tuple[float, float] | None = None
    """What the scaling changes on this text, in the mean and of a single token: the control, since an engine that
    reads no scaling is off by as much."""
    not_run: str | None = None
    """Why the engine was not run."""

    @property
    def failed(self) -> bool:
        return self.not_run is None and not (self.mean <= self.bound and self.most <= self.most_bound)

    @property
    def tells(self) -> bool:
        """Whether an engine that reads no scaling would fail."""
        return self.moved is None or self.moved[0] > self.bound or self.moved[1] > self.most_bound

    @property
    def words(self) -> str:
        """Which of the two bounds it left."""
        if not self.failed and not self.tells:
            return f"within {self.bound:g} of {self.against}, and so it is without the scaling: this text cannot tell"
        if not self.failed:
            return f"within {self.bound:g} of {self.against}"
        if self.mean <= self.bound:
            return f"one token more than {self.most_bound:g} from {self.against}"
        return f"more than {self.bound:g} from {self.against}"


def prove(
    source: Path,
    written: Path,
    scaling: Scaling,
    to: int,
    text: str,
    *,
    by: str = "ropewalk",
    gguf: Path | None = None,
    vllm: Path | None = None,
    progress: Callable[[str], None] = lambda what: None,
) -> list[Proof]:
    """text: anything, read again and again until it has `to` tokens; the last are scored. by: the engine that
    computes what was meant. gguf: the same model as a file, beside a directory. vllm: the python of an environment
    that has it."""
    first, encode = opened(source, engine=by, dtype="float32", hashed=False)
    tokens = _filled(encode(text), to)
    passage = Passage.plain(tokens, SCORED)
    progress(f"{by}, the source as it is")
    as_it_is = first.nats(passage)
    progress(f"{by}, the source under the scaling")
    meant, trained = first.nats(passage, scaling), first.trained
    moved = _apart(as_it_is, meant)
    found: list[Proof] = []
    for name, place, why in _engines(written, gguf, vllm):
        if why is not None:
            found.append(Proof(engine=name, not_run=why))
            continue
        progress(f"{name}, what was written")
        against, want, bounds = f"{by} on the source", meant, Bounds(max(MEAN[name], MEAN[by]), ONE_TOKEN)
        try:
            if name == "llama.cpp" and not _float32(place):
                llama = opened(source, engine=name, hashed=False)[0]
                try:
                    want, against = llama.nats(passage, scaling), "llama.cpp on the source, with the scaling's flags"
                except Cannot:
                    against += ", quantised"
                    bounds = _rounding(first, llama, Passage.plain(tokens[: trained or to], SCORED))
            dtype = None if name == "llama.cpp" else "float32"
            named = f"vllm:{vllm}" if name == "vLLM" else name
            engine = opened(place, engine=named, dtype=dtype, hashed=False)[0]
            got = engine.nats(passage)
        except Cannot as error:
            found.append(Proof(engine=name, not_run=str(error)))
            continue
        except RuntimeError as error:
            raise ValueError(f"{written} was written, but {name} failed on it: {error}") from error
        mean, most = _apart(got, want)
        found.append(Proof(engine=name, against=against, mean=mean, most=most, moved=moved, **bounds._asdict()))
        if name == "transformers" and trained is not None and BEFORE < trained < to - TOKENS:
            progress(f"{name}, with a cache and without")
            prompt = Passage.plain(tokens[: trained - BEFORE], 1)
            found.append(_greedy(engine, prompt, trained, scaling))
    return found


def _apart(one: Nats, other: Nats) -> tuple[float, float]:
    """In the mean, and of a single token."""
    return abs(float((one - other).mean())), float(np.abs(one - other).max())


def _rounding(first: Engine, llama: Engine, passage: Passage) -> Bounds:
    """What rounding alone asks for."""
    apart = LOOSER * np.abs(llama.nats(passage) - first.nats(passage))
    return Bounds(max(MEAN["llama.cpp"], float(apart.mean())), max(ONE_TOKEN, float(apart.max())))


def _greedy(engine: Any, prompt: Passage, trained: int, scaling: Scaling) -> Proof:
    if isinstance(engine, Begun):
        engine, prompt = engine.engine, engine.begun(prompt)
    engine.transformer.set_attn_implementation(engine.own_attention)
    short = shortfalls(engine.transformer, prompt.tokens, trained, scaling)
    return Proof(
        engine="transformers, cached",
        against=f"its best without a cache, of {TOKENS} greedy tokens across {trained:,}",
        mean=float(short.mean()),
        most=float(short.max()),
        bound=MEAN["transformers"],
    )


def _engines(written: Path, gguf: Path | None, vllm: Path | None) -> Iterator[tuple[str, Path, str | None]]:
    yield "ropewalk", written, _refused(written)
    if written.is_dir():
        yield "transformers", written, None if find_spec("transformers") else "transformers is not installed"
        yield "vLLM", written, None if vllm else "write --vllm PYTHON, the python of an environment that has it"
    elif vllm is not None:
        yield "vLLM", written, "it reads directories, and this is a GGUF file"
    if (file := gguf if written.is_dir() else written) is not None:
        missing = None if find_spec("xllamacpp") else "xllamacpp is not installed: pip install xllamacpp"
        yield "llama.cpp", file, missing


def _refused(written: Path) -> str | None:
    found = read(written)
    return None if found.refusal is None else f"it does not load this model: {found.refusal}"


def _float32(path: Path) -> bool:
    return all(info.type == "F32" for info in GGUF(path).tensors.values())


def _filled(tokens: Sequence[int], to: int) -> np.ndarray:
    if not tokens:
        raise ValueError("the text has no tokens; give another with --text")
    return np.resize(np.array(tokens, dtype=np.int64), to)
