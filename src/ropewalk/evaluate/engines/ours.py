"""Likelihoods by our own models: any family that loads, any positions, any scaling of RoPE.

The model as it is and under each scaling share their weights: position modules own no tensors. Logits are computed for
the scored tokens alone, a few at a time, so memory grows with a passage's hidden states and not with L x vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ropewalk import __version__, positions
from ropewalk.encodings.chain import Chain
from ropewalk.encodings.rope import RoPE
from ropewalk.evaluate.engines.by_logits import ByLogits
from ropewalk.evaluate.passage import Passage
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.models.config import LayerPattern
from ropewalk.scaling import Scaling


class Ours(ByLogits):
    """The engine `ropewalk`. model: a digest that names the weights in stored measurements. windows_scale: whether a
    scaling reaches layers with a window, as it does where the checkpoint's config has one set of parameters for all."""

    def __init__(self, transformer: Transformer, *, model: str, windows_scale: bool = False) -> None:
        if transformer.config.stack != "decoder" or not transformer.config.output:
            raise ValueError(
                f"the likelihood of a text is a decoder's; this model is {transformer.config.stack}"
                + ("" if transformer.config.output else " without an output map")
            )
        self.transformer, self.model, self.windows_scale = transformer.eval(), model, windows_scale
        dtype = str(next(transformer.parameters()).dtype).removeprefix("torch.")
        self.name = f"ropewalk {__version__}, {dtype}"
        self.trained = transformer.plan.trained or transformer.plan.stated
        self.vocabulary = transformer.config.vocabulary
        self._under: tuple[Scaling | None, Transformer] = (None, transformer)

    def hidden(self, passage: Passage, scaling: Scaling | None) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        model = self._with(scaling)
        device = model.tokens.weight.device
        at = positions.explicit(torch.from_numpy(passage.positions)[None].to(device), int(passage.positions[-1]) + 1)
        tokens = torch.from_numpy(np.ascontiguousarray(passage.tokens))[None].to(device)
        first = len(passage.tokens) - passage.scored
        # What predicts token i is the vector at i - 1; what the last token predicts is not asked for.
        return model.hidden(tokens, at)[0, first - 1 : -1], model.output

    def _with(self, scaling: Scaling | None) -> Transformer:
        """The model under a scaling; the last one is kept, since a measure asks for many passages under each."""
        if self._under[0] != scaling:
            model = self.transformer
            self._under = (scaling, model if scaling is None else under(model, scaling, self.windows_scale))
        return self._under[1]


def under(model: Transformer, scaling: Scaling, windows_scale: bool = False) -> Transformer:
    """The same weights, not copied, with RoPE's frequencies scaled."""
    with torch.device("meta"):
        other = Transformer(scaled(model.config, scaling, windows_scale))
    other.load_state_dict(model.state_dict(), assign=True)
    return other.eval()


def scaled(config: TransformerConfig, scaling: Scaling, windows_scale: bool = False) -> TransformerConfig:
    """The config with this scaling in every layer that attends to the whole text, and with windows_scale in all."""
    if not isinstance(config.layers, LayerPattern):
        encoding = _scaled(config.encoding, scaling)
        if encoding is None:
            raise ValueError(f"a scaling changes RoPE's frequencies, and this model uses {config.encoding.kind}")
        return config.model_copy(update={"encoding": encoding})
    kinds = config.layers.kinds
    reached = {name: kind for name, kind in kinds.items() if windows_scale or kind.window is None}
    new = {name: encoding for name, kind in reached.items() if (encoding := _scaled(kind.encoding, scaling))}
    if not new:
        raise ValueError("a scaling changes RoPE's frequencies, and no layer of this model uses RoPE without a window")
    changed = {name: kinds[name].model_copy(update={"encoding": encoding}) for name, encoding in new.items()}
    return config.model_copy(update={"layers": config.layers.model_copy(update={"kinds": {**kinds, **changed}})})


def _scaled(encoding: Any, scaling: Scaling) -> Any:
    """An encoding with this scaling in its rotation, which may be a part of a chain; None where it does not rotate."""
    if isinstance(encoding, Chain.Config):
        parts = [_scaled(part, scaling) for part in encoding.parts]
        new = tuple(part or before for part, before in zip(parts, encoding.parts, strict=True))
        return encoding.model_copy(update={"parts": new}) if any(parts) else None
    return encoding.model_copy(update={"scaling": scaling}) if isinstance(encoding, RoPE.Config) else None
