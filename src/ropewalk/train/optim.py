"""Optimizers: torch's own AdamW, and Muon for the matrices inside the blocks with AdamW for the rest.

Weights that are multiplied (matrices) decay, what is added or scales (norms, biases, position tables) does not.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ropewalk.encodings import Encoding
from ropewalk.settings import Settings

Rate = Annotated[float, Field(gt=0, lt=100)]
Decay = Annotated[float, Field(ge=0, lt=10)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Adam(Settings):
    kind: str
    lr: Rate | None = None
    """At the peak. Unless given 0.001, and with the schedule of 2017 (width x warmup)^-0.5."""
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    eps: Annotated[float, Field(gt=0, lt=1)] = 1e-8
    decay: Decay = 0.1
    """Of matrices, per step and times the learning rate."""


class AdamW(Adam):
    """arXiv:1711.05101."""

    kind: Literal["adamw"] = "adamw"


class Muon(Adam):
    """Orthogonalised momentum for the matrices of the blocks; the settings of AdamW are for all else."""

    kind: Literal["muon"] = "muon"
    matrix_lr: Rate = 3e-3
    """At the peak, for updates as large as AdamW's (arXiv:2502.16982); 0.02 is for updates scaled otherwise."""
    momentum: Beta = 0.95


AnyOptimizer = Annotated[AdamW | Muon, Field(discriminator="kind")]


def optimizers(config: Adam, model: nn.Module, lr: float) -> list[Optimizer]:
    """Every parameter in exactly one group. Each group remembers its peak rate as `peak`."""
    positions = {id(p) for module in model.modules() if isinstance(module, Encoding) for p in module.parameters()}
    inside = {id(p) for name, p in model.named_parameters() if ".blocks." in name}
    learned = [p for p in model.parameters() if p.requires_grad]
    matrices = [p for p in learned if p.ndim >= 2 and id(p) not in positions]
    rest = [p for p in learned if p.ndim < 2 or id(p) in positions]
    made: list[Optimizer] = []
    if isinstance(config, Muon):
        turned = [p for p in matrices if p.ndim == 2 and id(p) in inside]
        matrices = [p for p in matrices if not any(p is q for q in turned)]
        made.append(
            torch.optim.Muon(
                turned,
                lr=config.matrix_lr,
                momentum=config.momentum,
                weight_decay=config.decay,
                adjust_lr_fn="match_rms_adamw",
            )
        )
    groups = [
        {"params": alike, "weight_decay": decay}
        for params, decay in ((matrices, config.decay), (rest, 0.0))
        for alike in by_layout(params)
    ]
    made.append(torch.optim.AdamW(groups, lr=lr, betas=config.betas, eps=config.eps, fused=True))
    for optimizer in made:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return made


def by_layout(params: list[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Those that lie alike over the ranks together: a fused update takes no mixture."""
    found: dict[Any, list[nn.Parameter]] = {}
    for p in params:
        key = (p.device_mesh.mesh_dim_names, p.placements) if isinstance(p, DTensor) else None
        found.setdefault(key, []).append(p)
    return list(found.values())


def set_rates(made: list[Optimizer], share: float) -> None:
    for optimizer in made:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * share
