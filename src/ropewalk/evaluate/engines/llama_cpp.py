"""Likelihoods by llama.cpp, through xllamacpp: what a GGUF file is worth to those who serve it.

Its public interface generates text, so the scored tokens are forced by a grammar that allows nothing else, and their
log-probabilities before the grammar are read. They run one by one: a few hundred at the end of a text. Keys and values
are kept in float32 and flash attention is off, so that what is compared is the model and not their rounding.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.engines.llama_cpp import flags
from ropewalk.checkpoints.inspect.changes import Wanted
from ropewalk.evaluate.passage import Cannot, Nats, Numbers, Passage
from ropewalk.scaling import Scaling

MOST = 1024
"""Scored tokens of a passage, since each is a pass of its own."""
SETTINGS = {
    "--rope-freq-base": "rope_freq_base",
    "--yarn-beta-fast": "yarn_beta_fast",
    "--yarn-beta-slow": "yarn_beta_slow",
}
"""Flags whose number is a setting of the library as it stands."""
ROOM = 256
"""Contexts are multiples of this, so that texts of nearly one length share a server."""


class LlamaCpp:
    """The engine `llama.cpp`. model: a digest that names the file; facts: of its metadata."""

    def __init__(self, path: Path, *, model: str, facts: Facts) -> None:
        import xllamacpp

        self.library: Any = xllamacpp
        self.path, self.model, self.facts = path, model, facts
        self.name = f"llama.cpp (xllamacpp {version('xllamacpp')}), file's weights, float32 cache"
        self.trained = facts.resolved.plan.trained or facts.resolved.plan.stated
        self.vocabulary = len(facts.resolved.config.get("tokenizer.ggml.tokens", ())) or 2**31
        self._server: tuple[Scaling | None, int, Any] = (None, 0, None)

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        if passage.gaps:
            raise Cannot("llama.cpp refuses positions with gaps")
        if passage.scored > MOST:
            raise Cannot(
                f"llama.cpp scores token by token, at most {MOST:,} of a text; {passage.scored:,} were asked for"
            )
        tokens = passage.tokens.tolist()
        before, scored = tokens[: -passage.scored], tokens[-passage.scored :]
        asked = {
            "prompt": before,
            "grammar": "root ::= " + " ".join(f"<[{token}]>" for token in scored),
            "n_predict": len(scored),
            "logprobs": 1,
            "temperature": 0.0,
            "cache_prompt": False,
        }
        answer = self._with(scaling, len(tokens)).handle_completions(asked)
        if "grammar stack" in str(answer.get("error")):
            raise Cannot("llama.cpp cannot force a token that is part of a character; score a text without such tokens")
        if "choices" not in answer:
            raise RuntimeError(f"llama.cpp did not answer: {str(answer)[:300]}")
        found = answer["choices"][0]["logprobs"]["content"]
        if [one["id"] for one in found] != scored:
            raise RuntimeError(f"llama.cpp gave {len(found)} tokens, not the {len(scored)} that its grammar allows")
        return np.array([-one["logprob"] for one in found])

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        raise Cannot("llama.cpp is asked for forced tokens, and has no likelihoods of candidates")

    def _with(self, scaling: Scaling | None, length: int) -> Any:
        # Asked also where a server with room for it runs: that ends texts at the file's context_length all the same.
        settings = self._settings(scaling, length)
        switch = self.facts.switch
        context = -(-(length + 1) // ROOM) * ROOM
        if switch is not None and length <= switch:
            context = min(context, switch)
        under, room, server = self._server
        # A longer context has the other list: what a text is read with must not depend on those before it.
        other = switch is not None and context <= switch < room
        if server is None or under != scaling or room < context or other:
            self._server = (None, 0, None)  # the old one gives its memory back first
            self._server = (scaling, context, self._started(settings, context))
        return self._server[2]

    def _started(self, settings: dict[str, Any], context: int) -> Any:
        given = self.library.CommonParams()
        given.model.path = str(self.path)
        given.n_ctx, given.n_parallel, given.warmup, given.verbosity = context, 1, False, -1
        given.n_batch = given.n_ubatch = 512
        given.cache_type_k = given.cache_type_v = self.library.ggml_type.GGML_TYPE_F32
        given.flash_attn_type = self.library.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        threads = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))
        given.cpuparams.n_threads = given.cpuparams_batch.n_threads = threads
        for name, value in settings.items():
            setattr(given, name, value)
        return self.library.Server(given)

    def _settings(self, scaling: Scaling | None, length: int) -> dict[str, Any]:
        """What llama-server's flags for a scaling set."""
        given: dict[str, str] = {}
        if scaling is not None:
            resolved = self.facts.resolved
            layer = next(layer for layer in resolved.plan.layers if layer.base is not None)
            words = flags.flags(resolved, scaling, layer, length)
            why = Wanted(resolved, scaling, length).short_of(flags.read(resolved, scaling))
            if words is None or why is not None:
                raise Cannot(f"llama.cpp has no flags for {scaling.kind} on this file: {why or 'there are none'}")
            given = dict(zip(words[::2], words[1::2], strict=True))
        elif length > (self.facts.longest or length):
            given["--override-kv"] = "context_length"
        if "--override-kv" in given:
            raise Cannot(
                f"llama.cpp ends texts at the file's context_length, {self.facts.longest:,}, and xllamacpp cannot "
                f"override it; {length:,} tokens were given"
            )
        found: dict[str, Any] = {SETTINGS[flag]: float(text) for flag, text in given.items() if flag in SETTINGS}
        if "--rope-scaling" in given:
            kinds = {"none": 0, "linear": 1, "yarn": 2}
            found["rope_scaling_type"] = self.library.llama_rope_scaling_type(kinds[given["--rope-scaling"]])
        if "--rope-scale" in given:
            found["rope_freq_scale"] = 1 / float(given["--rope-scale"])
        if "--yarn-orig-ctx" in given:
            found["yarn_orig_ctx"] = int(given["--yarn-orig-ctx"])
        return found
