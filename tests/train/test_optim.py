"""Which weights decay, which optimizer has them, and that sizes are cut evenly."""

from __future__ import annotations

import pytest
import torch

from ropewalk.models import preset
from ropewalk.train.config import TrainConfig
from ropewalk.train.objective import Learner
from ropewalk.train.optim import AdamW, Muon, optimizers, set_rates
from ropewalk.train.plan.sizes import sizes

SMALL = {"vocabulary": 53, "width": 32, "heads": 4, "head_width": 8, "key_heads": 4, "hidden": 64, "layers": 2}


@pytest.mark.parametrize("name", ["llama", "t5", "bert"])
@pytest.mark.parametrize("config", [AdamW(), Muon()], ids=["adamw", "muon"])
def test_every_weight_has_one_place(name: str, config: AdamW) -> None:
    model = Learner(preset(name, **SMALL))
    made = optimizers(config, model, 1e-3)
    groups = [group for optimizer in made for group in optimizer.param_groups]
    held = [id(p) for group in groups for p in group["params"]]
    assert sorted(held) == sorted(id(p) for p in model.parameters())
    names = {id(p): name for name, p in model.named_parameters()}
    decaying = {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}
    assert all(name.endswith("weight") and "norm" not in name for name in decaying), decaying
    assert not any("encodings" in name for name in decaying)
    assert "tokens.weight" in decaying
    if isinstance(config, Muon):
        turned = {names[id(p)] for p in made[0].param_groups[0]["params"]}
        assert turned
        assert all(
            ".blocks." in name
            and name.endswith(("qkv.weight", "out.weight", "up.weight", "down.weight", "q.weight", "kv.weight"))
            for name in turned
        ), turned


@pytest.mark.parametrize("config", [AdamW(decay=0.0), Muon(decay=0.0, matrix_lr=0.02)], ids=["adamw", "muon"])
def test_it_learns(config: AdamW) -> None:
    torch.manual_seed(0)
    model = Learner(preset("llama", **SMALL))
    made = optimizers(config, model, 1e-2)
    tokens = torch.randint(0, 53, (2, 17))
    from ropewalk import positions

    losses = []
    for _ in range(30):
        loss = model(tokens[:, :-1], positions.plain(16, batch=2), tokens[:, 1:]) / 32
        loss.backward()
        set_rates(made, 1.0)
        for optimizer in made:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_a_rate_is_a_share_of_its_own_peak() -> None:
    model = Learner(preset("llama", **SMALL))
    made = optimizers(Muon(matrix_lr=0.02), model, 1e-3)
    set_rates(made, 0.5)
    assert [group["lr"] for optimizer in made for group in optimizer.param_groups] == [0.01, 5e-4, 5e-4]


@pytest.mark.parametrize(
    ("given", "ranks", "rows", "micro", "passes", "steps"),
    [
        ({"tokens": 1_000_000, "batch": 16_000}, 1, 16, 16, 1, 61),
        ({"tokens": 1_000_000, "batch": 16_000, "micro": 4096}, 2, 16, 4, 2, 61),
        ({"steps": 7, "batch": 12 * 1024, "micro": 5 * 1024}, 2, 12, 3, 2, 7),
        ({"steps": 7, "batch": 10}, 1, 1, 1, 1, 7),
    ],
)
def test_sizes(given: dict[str, int], ranks: int, rows: int, micro: int, passes: int, steps: int) -> None:
    found = sizes(TrainConfig.model_validate(given), 1024, ranks)
    assert (found.rows, found.micro, found.passes, found.steps) == (rows, micro, passes, steps)


def test_ranks_must_share_a_batch_evenly() -> None:
    with pytest.raises(ValueError, match=r"5 sequences of 1,024, which 2 .* write train.batch=4096"):
        sizes(TrainConfig(steps=1, batch=5 * 1024), 1024, 2)


def test_an_update_of_muon_is_as_large_as_one_of_adam() -> None:
    """Whatever the shape: 0.2 of the rate by its root mean square, as arXiv:2502.16982 scales it."""
    torch.manual_seed(0)
    model = Learner(preset("llama", **SMALL))
    made = optimizers(Muon(matrix_lr=1e-2, decay=0.0), model, 1e-3)
    (group,) = made[0].param_groups
    before = [parameter.detach().clone() for parameter in group["params"]]
    for parameter in group["params"]:
        parameter.grad = torch.randn_like(parameter)
    made[0].step()
    for old, new in zip(before, group["params"], strict=True):
        assert float((new.detach() - old).pow(2).mean().sqrt()) == pytest.approx(0.2 * 1e-2, rel=0.25)
