"""Likelihoods by transformers: every architecture it has, experts and latent attention too, under any scaling.

A scaling is put into the model's own rotary modules. Attention goes through ours, which takes its rule from the layer
and not from a mask: transformers takes every gap in positions for a new document, and some of its models have only an
attention that is quadratic in memory. Where ours does not give the model's own logits, transformers' eager is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

from ropewalk import positions
from ropewalk.attention import Rule, Score, attend
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.load.patch import Patched, patch
from ropewalk.encodings import NoPE
from ropewalk.evaluate.engines.by_logits import ByLogits
from ropewalk.evaluate.passage import Passage
from ropewalk.scaling import Dynamic, Scaling

ATTENTION = "ropewalk"
KNOWN_LAYERS = {"full_attention", "sliding_attention"}
"""Layer types whose rule attention is told; that of others stands in their masks alone."""
PROBE = 16
"""Tokens on which our attention, and the output map alone, must give the model's own logits."""
AGREES = {torch.float32: 1e-4, torch.float64: 1e-8}
"""Of the largest logit; less in the dtypes below."""


class HF(ByLogits):
    """The engine `transformers`. model: a digest that names the weights; facts: of its config."""

    def __init__(self, transformer: Any, *, model: str, facts: Facts) -> None:
        self.transformer, self.model, self.facts = transformer.eval(), model, facts
        config = transformer.config.get_text_config()
        self.name = f"transformers {transformers.__version__}, {str(transformer.dtype).removeprefix('torch.')}"
        self.trained = facts.resolved.plan.trained or facts.resolved.plan.stated
        self.vocabulary: int = config.vocab_size
        self._patched: tuple[object, Patched | None] = (None, None)
        self.grows = any(isinstance(layer.scaling, Dynamic) for layer in facts.resolved.plan.layers)
        """Whether its base grows with a text and stays so until the next that is shorter than the trained length."""
        self.own_attention: str = transformer.config._attn_implementation  # noqa: SLF001, there is no public name
        """What it has by itself, and needs where it has a cache: ours is for whole texts."""
        tokens = torch.arange(PROBE, device=transformer.device)[None] % self.vocabulary
        wanted = self._probed(tokens)
        if set(getattr(config, "layer_types", None) or ()) <= KNOWN_LAYERS:
            windows: dict[int | None, int | None] = {}

            def noting(module: Any, *given: Any, sliding_window: int | None = None, **more: Any) -> Any:
                windows[getattr(module, "layer_idx", None)] = sliding_window
                return _attend(module, *given, sliding_window=sliding_window, **more)

            transformers.AttentionInterface.register(ATTENTION, noting)
            transformer.set_attn_implementation(ATTENTION)
            same = _same(self._probed(tokens), wanted)
            transformers.AttentionInterface.register(ATTENTION, _attend)
            # A probe is shorter than windows are: some models have theirs in their masks alone (PhiMoE, Qwen2-MoE).
            layers = dict(enumerate(facts.resolved.plan.layers))
            if not same or any(n not in layers or layers[n].window != window for n, window in windows.items()):
                transformer.set_attn_implementation("eager")
        alone = self._output(self._vectors(tokens, None))
        self.alone = alone.shape == wanted.shape and _same(alone, wanted)
        """Whether logits are the output map of the last vectors and nothing else, so that parts of them can be made."""

    def hidden(self, passage: Passage, scaling: Scaling | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        device = self.transformer.device
        self._put(scaling, int(passage.positions[-1]) + 1)
        if scaling is None and self.grows:
            self._vectors(torch.zeros(1, 1, dtype=torch.long, device=device), None)
        tokens = torch.from_numpy(passage.tokens.copy())[None].to(device)
        where = torch.from_numpy(passage.positions.copy())[None].to(device)
        # What predicts token i is the vector at i - 1; what the last token predicts is not asked for.
        scored = slice(len(passage.tokens) - passage.scored - 1, -1)
        if self.alone:
            return self._vectors(tokens, where)[0, scored], self._output
        keep = passage.scored + 1
        given = {"position_ids": where, "attention_mask": torch.ones_like(tokens), "use_cache": False}
        return self.transformer(tokens, **given, logits_to_keep=keep).logits[0, :-1], lambda logits: logits

    def _put(self, scaling: Scaling | None, limit: int) -> None:
        key = (scaling, limit) if scaling is not None and scaling.length_dependent else scaling
        if self._patched[0] == key:
            return
        if self._patched[1] is not None:
            self._patched[1].undo()
            self._patched = (None, None)
        if scaling is not None:
            self._patched = (key, patch(self.transformer, plan=self.facts.scaled(scaling), length=limit))

    @torch.inference_mode()
    def _probed(self, tokens: Tensor) -> Tensor:
        return self.transformer(tokens, attention_mask=torch.ones_like(tokens), use_cache=False).logits

    @torch.inference_mode()
    def _vectors(self, tokens: Tensor, where: Tensor | None) -> Tensor:
        # The mask of ones: without it, a gap in positions is taken for the start of another document.
        given = {"position_ids": where, "attention_mask": torch.ones_like(tokens), "use_cache": False}
        return self.transformer.get_decoder()(tokens, **given).last_hidden_state

    @torch.inference_mode()
    def _output(self, x: Tensor) -> Tensor:
        return self.transformer.get_output_embeddings()(x)


def _attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: object,
    *,
    scaling: float | None = None,
    sliding_window: int | None = None,
    s_aux: Tensor | None = None,
    softcap: float | None = None,
    **_: object,
) -> tuple[Tensor, None]:
    """transformers' interface for attention functions. Causal by the order of tokens, whatever their positions are."""
    at = positions.plain(query.shape[2], device=query.device)
    score = Score(NoPE().at(at), Rule(window=sliding_window), scale=scaling, soft_cap=softcap, sink=s_aux)
    return attend(query, key, value, score).transpose(1, 2).contiguous(), None


def _same(x: Tensor, wanted: Tensor) -> bool:
    bound = AGREES.get(wanted.dtype, 3e-2)
    return bool((x.double() - wanted.double()).abs().max() <= bound * wanted.abs().max().double())
