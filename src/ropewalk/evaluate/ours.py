"""Likelihoods by our own models: any family that loads, any positions, any scaling of RoPE.

The model as it is and under each scaling share their weights: position modules own no tensors. Logits are computed for
the scored tokens alone, a few at a time, so memory grows with a passage's hidden states and not with L x vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ropewalk import __version__, positions
from ropewalk.encodings.rope import RoPE
from ropewalk.evaluate.passage import Nats, Numbers, Passage
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.models.config import LayerPattern
from ropewalk.scaling import Scaling

LOGITS = 1 << 24
"""Logits held at once."""


class Ours:
    """The engine `ropewalk`. model: a digest that names the weights in stored measurements."""

    def __init__(self, transformer: Transformer, *, model: str) -> None:
        if transformer.config.stack != "decoder" or not transformer.config.output:
            raise ValueError(
                f"the likelihood of a text is a decoder's; this model is {transformer.config.stack}"
                + ("" if transformer.config.output else " without an output map")
            )
        self.transformer, self.model = transformer.eval(), model
        dtype = str(next(transformer.parameters()).dtype).removeprefix("torch.")
        self.name = f"ropewalk {__version__}, {dtype}"
        self.trained = transformer.plan.trained or transformer.plan.stated
        self.vocabulary = transformer.config.vocabulary
        self._under: tuple[Scaling | None, Transformer] = (None, transformer)

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        tokens = torch.from_numpy(np.ascontiguousarray(passage.tokens))
        found = [
            F.cross_entropy(logits, tokens[start : start + len(logits)].to(logits.device), reduction="none")
            for start, logits in self._logits(passage, scaling)
        ]
        return torch.cat(found).double().cpu().numpy()

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        wanted = torch.from_numpy(np.ascontiguousarray(candidates))
        found = [-logits.log_softmax(-1)[:, wanted.to(logits.device)] for _, logits in self._logits(passage, scaling)]
        return torch.cat(found).double().cpu().numpy()

    @torch.inference_mode()
    def _logits(self, passage: Passage, scaling: Scaling | None) -> Iterator[tuple[int, Tensor]]:
        """Float32 logits in pieces, each with the number of the first token it predicts."""
        if int(passage.tokens.max()) >= self.vocabulary:
            raise ValueError(
                f"token {int(passage.tokens.max()):,} and the model knows {self.vocabulary:,}: whose tokenizer is this?"
            )
        model = self._with(scaling)
        device = model.tokens.weight.device
        at = positions.explicit(torch.from_numpy(passage.positions)[None].to(device), int(passage.positions[-1]) + 1)
        tokens = torch.from_numpy(np.ascontiguousarray(passage.tokens))[None].to(device)
        first = len(passage.tokens) - passage.scored
        # What predicts token i is the vector at i - 1; what the last token predicts is not asked for.
        x = model.hidden(tokens, at)[0, first - 1 : -1]
        rows = max(1, LOGITS // self.vocabulary)
        for start in range(0, len(x), rows):
            yield first + start, model.output(x[start : start + rows]).float()

    def _with(self, scaling: Scaling | None) -> Transformer:
        """The model under a scaling; the last one is kept, since a measure asks for many passages under each."""
        if self._under[0] != scaling:
            self._under = (scaling, self.transformer if scaling is None else under(self.transformer, scaling))
        return self._under[1]


def under(model: Transformer, scaling: Scaling) -> Transformer:
    """The same weights, not copied, with RoPE's frequencies scaled in every layer that attends to the whole text."""
    with torch.device("meta"):
        other = Transformer(scaled(model.config, scaling))
    other.load_state_dict(model.state_dict(), assign=True)
    return other.eval()


def scaled(config: TransformerConfig, scaling: Scaling) -> TransformerConfig:
    """Windowed layers see no more than their window at any length: only layers without one are scaled, as engines do
    with Gemma 3 and gpt-oss; where all have windows, all are."""

    def changed(encoding: Any) -> Any:
        return encoding.model_copy(update={"scaling": scaling})

    if not isinstance(config.layers, LayerPattern):
        if not isinstance(config.encoding, RoPE.Config):
            raise ValueError(f"a scaling changes RoPE's frequencies, and this model uses {config.encoding.kind}")
        return config.model_copy(update={"encoding": changed(config.encoding)})
    kinds = config.layers.kinds
    rotating = {name for name, kind in kinds.items() if isinstance(kind.encoding, RoPE.Config)}
    whole = {name for name in rotating if kinds[name].window is None} or rotating
    if not whole:
        raise ValueError("a scaling changes RoPE's frequencies, and no layer of this model uses RoPE alone")
    new = {
        name: kind.model_copy(update={"encoding": changed(kind.encoding)}) if name in whole else kind
        for name, kind in kinds.items()
    }
    return config.model_copy(update={"layers": config.layers.model_copy(update={"kinds": new})})
