"""An ordinary PyTorch loop, and an attention mask as tokenizers write it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

from ropewalk import positions
from ropewalk.models import PRESETS, Transformer, preset
from tests.closeness import assert_close

SIZES: dict[str, Any] = {"width": 32, "heads": 2, "layers": 1, "hidden": 64, "vocabulary": 50}


@pytest.mark.parametrize("name", PRESETS)
def test_fifteen_lines_train_every_preset(name: str) -> None:
    """Copying what is read: the loss must fall, with the preset's own dropout."""
    model = Transformer(preset(name, **SIZES, **({"key_heads": 1} if name == "llama" else {})))
    two = model.config.stack == "encoder-decoder"
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    tokens = torch.randint(0, 50, (8, 16))
    losses = []
    for _ in range(25):
        logits = model(tokens, source=tokens) if two else model(tokens)
        loss = F.cross_entropy(logits.flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-5:]) < 0.95 * sum(losses[:5])


@pytest.mark.parametrize("name", ["bert", "llama", "bloom"])
@pytest.mark.parametrize("mask", [[1, 1, 1, 1, 0, 0], [0, 0, 1, 1, 1, 1]], ids=["right", "left"])
def test_an_attention_mask_is_where_the_tokens_are(name: str, mask: list[int]) -> None:
    model = Transformer(preset(name, **SIZES, **({"key_heads": 1} if name == "llama" else {}))).eval()
    text = torch.randint(0, 50, (1, 4))
    padded = torch.zeros(1, 6, dtype=torch.int64)
    where = torch.tensor(mask).bool()
    padded[0, where] = text[0]
    for given in (torch.tensor([mask]), torch.tensor([mask]).bool()):
        with torch.no_grad():
            assert_close(name, model(text)[0], model(padded, attention_mask=given)[0, where], 1e-5)


def test_what_cannot_be_meant_by_an_attention_mask_is_answered() -> None:
    model = Transformer(preset("llama", **SIZES, key_heads=1))
    tokens = torch.randint(0, 50, (2, 6))
    for told, said in (
        ({"attention_mask": torch.ones(2, 1, 6, 6)}, r"attention_mask is \(2, 1, 6, 6\)"),
        ({"attention_mask": torch.ones(2, 6)}, "0 and 1, got"),
        ({"attention_mask": torch.ones(2, 9, dtype=torch.int64)}, r"positions\.explicit\(cache\.next"),
        ({"attention_mask": torch.ones(2, 6).long(), "at": positions.plain(6, batch=2)}, "not both"),
    ):
        with pytest.raises(ValueError, match=said):
            model(tokens, **told)
