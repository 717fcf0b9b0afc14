"""Everything a checkpoint holds, under names that do not depend on the world: a model's tensors and its optimizers'.

    model.NAME             parameters and buffers
    optimizer.NAME.KEY     what an optimizer remembers of a parameter: exp_avg, momentum_buffer, step, ...

An optimizer's state is taken and given back as it is. Torch's own get_optimizer_state_dict makes a state that is
missing by a step with zero gradients, which leaves Adam counting from 1. Learning rates, decays and betas are no state
here: the recipe has them, and a resumed run takes them from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from ropewalk.train.checkpoint.fused import Cut

WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


def collect(model: nn.Module, optimizers: Sequence[Optimizer]) -> dict[str, Tensor]:
    """The tensors themselves, not copies: written to, they change the model."""
    found = of_model(model)
    for name, parameter, state in _states(model, optimizers):
        for key, value in state.items():
            if value is None:
                continue
            if not isinstance(value, Tensor):
                raise TypeError(f"an optimizer keeps {key}={value!r} of {name}; only tensors can be saved")
            if isinstance(parameter, DTensor) and not isinstance(value, DTensor) and value.numel() > 1:
                raise TypeError(
                    f"an optimizer keeps {key} of {name} as a local tensor though {name} is sharded; ranks would "
                    "overwrite each other's. Use an optimizer whose state is sharded as its parameters are"
                )
            found[f"optimizer.{name}.{key}"] = value
    # Sorted: an optimizer that was resumed keeps its tensors in another order, and the files would differ by that.
    return dict(sorted(found.items()))


def room(
    model: nn.Module, optimizers: Sequence[Optimizer], contents: Metadata, cut: Sequence[Cut] = ()
) -> dict[str, Tensor]:
    """Tensors to read a checkpoint into: the model's own, and new ones for what the optimizers had. cut: what is read
    otherwise."""
    ours, theirs = {name for each in cut for name in each.ours}, {name for each in cut for name in each.theirs}
    saved = {key: about for key, about in contents.state_dict_metadata.items() if of_tensor(key) not in theirs}
    wanted = {key: tensor for key, tensor in of_model(model).items() if of_tensor(key) not in ours}
    compare(wanted, saved)
    parameters = {name: parameter for name, parameter, _ in _states(model, optimizers)}
    for key, about in saved.items():
        name = of_tensor(key)
        if key.startswith("model.") or name not in parameters or not isinstance(about, TensorStorageMetadata):
            continue
        dtype = about.properties.dtype
        if about.size == parameters[name].shape:
            wanted[key] = torch.zeros_like(parameters[name], dtype=dtype, requires_grad=False)
        else:
            wanted[key] = torch.zeros(about.size, dtype=dtype)
    if left := [key for key in saved if key not in wanted]:
        raise ValueError(
            f"the checkpoint has {len(left)} optimizer tensors of parameters that no optimizer has now, the first is "
            f"{left[0]}; resume with the optimizer it was saved with"
        )
    return wanted


def of_tensor(key: str) -> str:
    """The parameter that an entry of a checkpoint belongs to."""
    kind, _, name = key.partition(".")
    return name.rpartition(".")[0] if kind == "optimizer" else name


def remembered(contents: Metadata) -> dict[str, list[str]]:
    """What an optimizer remembers of each parameter in a checkpoint."""
    found: dict[str, list[str]] = {}
    for key in sorted(contents.state_dict_metadata):
        if key.startswith("optimizer."):
            found.setdefault(of_tensor(key), []).append(key.rpartition(".")[2])
    return found


def give_back(model: nn.Module, optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Optimizers get the state that was read; a model's tensors were read in place."""
    names = _names(model)
    states: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            name, _, what = key.removeprefix("optimizer.").rpartition(".")
            states.setdefault(name, {})[what] = tensor
    for optimizer in optimizers:
        order = [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
        state = {number: states[name] for number, name in enumerate(order) if name in states}
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def of_model(model: nn.Module) -> dict[str, Tensor]:
    """Its parameters and buffers, under their names in a checkpoint."""
    return {f"model.{name}": each for name, each in get_model_state_dict(model).items() if isinstance(each, Tensor)}


def _names(model: nn.Module) -> dict[int, str]:
    found: dict[int, str] = {}
    for name, parameter in model.named_parameters():
        for wrapper in WRAPPERS:
            name = name.replace(wrapper, "")
        found[id(parameter)] = name
    return found


def _states(model: nn.Module, optimizers: Sequence[Optimizer]) -> Iterator[tuple[str, Tensor, dict[str, Any]]]:
    names = _names(model)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in names:
                    raise ValueError(
                        f"an optimizer has a parameter of shape {tuple(parameter.shape)} that the model has not; make "
                        "optimizers after the model is sharded"
                    )
                yield names[id(parameter)], parameter, optimizer.state.get(parameter, {})


def compare(model: Mapping[str, Tensor], saved: Mapping[str, Any]) -> None:
    """Raises where a checkpoint holds other tensors of a model than this one has."""
    wanted = {name: tuple(tensor.shape) for name, tensor in model.items()}
    faults = [f"{name} is not in the checkpoint" for name in wanted if name not in saved]
    faults += [f"{n} is not in the model" for n in saved if n.startswith("model.") and n not in wanted]
    for name, shape in wanted.items():
        if name in saved and tuple(saved[name].size) != shape:
            faults.append(f"{name} is {shape} in the model, {tuple(saved[name].size)} in the checkpoint")
    if faults:
        more = f", and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise ValueError(f"the checkpoint is of another model: {'; '.join(faults[:5])}{more}")


def weight(tensors: Mapping[str, Tensor]) -> int:
    """Bytes of all of it, over all ranks."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of tensors with a NaN or an infinity in what this rank has of them."""
    found = []
    for name, tensor in tensors.items():
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        # A sum is cheap and finite if all terms are; only where it is not are they looked at one by one.
        suspect = local.is_floating_point() and not bool(torch.isfinite(local.sum()))
        if suspect and not bool(torch.isfinite(local).all()):
            found.append(name)
    return found
