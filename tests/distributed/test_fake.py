"""A step on ranks that are not there: the counts follow from the shapes, and are those of the code that trains."""

from __future__ import annotations

import pytest

from ropewalk.distributed import MeshConfig, World
from ropewalk.distributed.fake import Measured, measure
from ropewalk.models import Transformer, TransformerConfig

SIZES = {"vocabulary": 512, "width": 64, "heads": 8, "key_heads": 8, "hidden": 128, "tie": False, "fused": False}


def measured(ranks: int, layers: int = 2, *, length: int = 64, recompute: bool = False, **mesh: int) -> Measured:
    config = TransformerConfig(**SIZES, layers=layers)
    return measure(lambda: Transformer(config), MeshConfig(**mesh), ranks, rows=1, length=length, recompute=recompute)


@pytest.mark.no_poison
def test_shards_shrink_with_the_world() -> None:
    few, many, split = measured(4), measured(64), measured(64, tp=8)
    # 64 features on 4 and 64 ranks: every weight divides, the two AdamW moments are twice the weights.
    assert few.parameters == 16 * many.parameters
    assert few.gradients == few.parameters
    assert many.optimizer - 2 * many.parameters == pytest.approx(4 * 21, abs=8)
    assert few.flops == many.flops
    assert split.flops < 0.5 * many.flops
    assert few.peak >= few.parameters + few.gradients + few.optimizer


@pytest.mark.no_poison
def test_traffic_is_by_side_of_the_mesh() -> None:
    traffic = {(line.axis, line.operation): line for line in measured(64, cp=2, tp=4).traffic}
    # Forward and backward each gather 2 blocks and the rest; the last block stays gathered between the two.
    assert traffic["fsdp", "reduce_scatter_base"].calls == 3
    assert traffic["cp", "all_gather_into_tensor"].calls == 2
    # Keys and values of 64 tokens, 2 heads of 8 features, float32.
    assert traffic["cp", "all_gather_into_tensor"].bytes == 2 * 64 * 2 * 2 * 8 * 4
    # Of 32 tokens: two sums forward and two backward a block, one before the output map; and of the loss itself.
    assert traffic["tp", "all_reduce"].bytes == (2 * 4 + 1) * 32 * 64 * 4 + 4


@pytest.mark.no_poison
def test_recomputation_trades_memory_for_work() -> None:
    kept, again = measured(8, 3, length=512), measured(8, 3, length=512, recompute=True)
    assert again.peak < 0.8 * kept.peak
    assert again.flops > 1.15 * kept.flops


@pytest.mark.no_poison
def test_a_process_that_estimated_joins_no_real_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch keeps rank 0 of the mesh that was estimated: each of two real ranks then saved the shards of rank 0."""
    measured(2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"has estimated a step of 2 ranks.*run ropewalk estimate in a process of"):
        World.start(MeshConfig())
