"""Context parallelism: each rank has a part of every sequence's tokens, and attention sees the keys of all parts.

Keys and values are gathered over the ranks of the axis, with their positions, before the core of each attention (as
Llama 3 was trained, arXiv:2407.21783, 3.3.2). Because a key comes with the integers that say where it is, the result is
the same for any encoding, any order of the parts and packed documents; nothing in an encoding knows that it happened.
Memory at one layer is that of all keys and values, 2 G K numbers a token, against H scores a pair that are never kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.distributed import ProcessGroup

from ropewalk.distributed.torch_private import gathered
from ropewalk.nn import Attention
from ropewalk.positions import Positions


def gather_keys(attention: Attention, group: ProcessGroup) -> None:
    """From now on this attention's queries meet the keys of every rank in the group."""

    def with_all_keys(core: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        q, k, v, signal, *rest = arguments
        both = gathered(torch.cat([k, v], -1).transpose(1, 2), 1, group)
        k, v = both.transpose(1, 2).split([k.shape[-1], v.shape[-1]], dim=-1)
        return (q, k, v, signal.with_keys(whole(signal.k, group)), *rest)

    attention.core.register_forward_pre_hook(with_all_keys)


def whole(at: Positions, group: ProcessGroup) -> Positions:
    """The positions of the gathered keys. Known where `World.cut` cut them out of whole sequences; asked of the others
    where the tensors were made anew, as FSDP does when it moves inputs to a device."""
    if at.whole is not None:
        return at.whole
    index, order, segment = (gathered(part, 1, group) for part in at[:3])
    return Positions(index, order, segment, at.limit)
