"""Meshes, cutting rows, and what one process does alone."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from ropewalk import positions
from ropewalk.data.batch import Batch
from ropewalk.distributed import MeshConfig, World, apply
from ropewalk.distributed.tensor import check
from ropewalk.distributed.world import AXES
from ropewalk.models import Transformer, TransformerConfig
from tests.distributed.steps import ALONE, SMALL, train


class Part(World):
    """One rank of a world without processes, to see what it cuts out."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(None, torch.device("cpu"))
        self.cp_rank, self.cp_size = rank, size


def batch(length: int) -> Batch:
    tokens = torch.arange(2 * length).view(2, length)
    at = positions.packed([[length], [3, length - 3]], limit=length)
    return Batch(tokens, at, tokens + 1, torch.arange(2), tokens + 2, at)


def test_mesh_takes_what_is_left() -> None:
    assert MeshConfig(cp=2, tp=4).sizes(32) == (1, 4, 2, 4)
    assert MeshConfig(dp_replicate=4, tp=2).sizes(16) == (4, 2, 1, 2)
    assert MeshConfig().sizes(1) == (1, 1, 1, 1)


@pytest.mark.parametrize(("mesh", "world"), [({"tp": 3}, 4), ({"dp_shard": 2}, 4), ({"cp": 2, "tp": 4}, 4)])
def test_mesh_that_does_not_fit(mesh: dict[str, int], world: int) -> None:
    with pytest.raises(ValueError, match=f"there are {world}; start torchrun"):
        MeshConfig(**mesh).sizes(world)


def test_one_process_is_no_world() -> None:
    world = World.start()
    assert (world.mesh, world.rank, world.size, world.dp_size, world.cp_size, world.tp_size) == (None, 0, 1, 1, 1, 1)
    assert world.sum(torch.tensor(3.0)) == 3
    assert world.agree(True)
    assert not world.agree(False)
    assert world.same(torch.tensor(1.0))
    assert world.cut(batch(8)).tokens.shape == (2, 8)
    with pytest.raises(ValueError, match="one process has no mesh"):
        world.axis("tp")
    world.stop()


def test_sums_are_taken_on_the_device_of_the_group() -> None:
    """nccl has no connections for the CPU, where an evaluation adds up its losses."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("meta:fake", store=FakeStore(), rank=0, world_size=2)
    try:
        sums = torch.zeros(3, 16, dtype=torch.float64)
        with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
            dist.all_reduce(sums)
        world = World(init_device_mesh("cpu", (2, 1, 1, 1), mesh_dim_names=AXES), torch.device("meta"))
        assert world.sum(sums).device.type == "meta"
    finally:
        dist.destroy_process_group()


def test_cut_deals_every_token_once_and_evenly() -> None:
    whole, parts = batch(16), [Part(rank, 2).cut(batch(16)) for rank in range(2)]
    assert parts[0].tokens[0].tolist() == [0, 1, 2, 3, 12, 13, 14, 15]
    assert parts[1].tokens[0].tolist() == [4, 5, 6, 7, 8, 9, 10, 11]
    for part in parts:
        assert torch.equal(part.target, part.tokens + 1)
        assert part.source is not None
        assert torch.equal(part.source, part.tokens + 2)
        assert torch.equal(part.at.order, whole.at.order[:, part.tokens[0]])
        # What the ranks' keys are when gathered one rank after the other.
        assert torch.equal(part.at.whole.segment, torch.cat([p.at.segment for p in parts], 1))
    seen = [sum(int((whole.at.order[0] <= q).sum()) for q in part.at.order[0]) for part in parts]
    assert seen[0] == seen[1]


def test_cut_says_what_does_not_divide() -> None:
    with pytest.raises(ValueError, match="sequences of 10 tokens cannot be cut into 2 x cp = 4 equal pieces"):
        Part(0, 2).cut(batch(10))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"fused": True}, "write model.fused: false"),
        ({"heads": 6, "key_heads": 6, "head_width": 8}, "heads 6 cannot be shared by tp=4"),
        ({"key_heads": 2}, "key_heads 2 cannot be shared by tp=4"),
        ({"hidden": 42, "key_heads": 4}, "hidden 42 cannot be shared by tp=4"),
    ],
)
def test_models_that_tensor_parallelism_refuses(change: dict[str, int], says: str) -> None:
    with torch.device("meta"):
        model = Transformer(TransformerConfig(**{**SMALL, **change}))
    with pytest.raises(ValueError, match=says):
        check(model, 4)


def test_weights_start_from_seed_and_name() -> None:
    config = TransformerConfig(**{**SMALL, "encoding": "fire"})
    one, two, other = (apply.parallelise(lambda: Transformer(config), ALONE, seed=seed) for seed in (1, 1, 2))
    weights, others = dict(one.named_parameters()), dict(other.named_parameters())
    for name, weight in two.named_parameters():
        assert torch.equal(weight, weights[name])
        assert weight.isfinite().all()
    up = [f"decoder.blocks.{number}.mlp.up.weight" for number in range(2)]
    assert not torch.equal(weights[up[0]], weights[up[1]])
    assert not torch.equal(weights[up[0]], others[up[0]])
    # The same spread as the model gives itself.
    assert weights[up[0]].std().item() == pytest.approx(config.std, rel=0.1)


def test_micro_batches_and_recomputation_change_nothing() -> None:
    one = train({}, ALONE, steps=2, micro=2)
    two = train({}, ALONE, steps=2, micro=2, recompute=True)
    assert one.losses == two.losses
    assert all(torch.equal(one.weights[name], two.weights[name]) for name in one.weights)


def test_clip_is_torchs() -> None:
    model = torch.nn.Linear(5, 3)
    model(torch.ones(2, 5)).square().sum().backward()
    want = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
    assert apply.clip(model, None, ALONE).item() == pytest.approx(want.item(), rel=1e-6)
    assert apply.clip(model, 0.5, ALONE).item() == pytest.approx(want.item(), rel=1e-6)
    assert apply.clip(model, None, ALONE).item() == pytest.approx(0.5, rel=1e-5)
