"""The papers, where they publish another formula than engines ship. Nothing is expected to agree with this one.

YaRN (arXiv 2309.00071): the ramp is linear in rotations and the gain 0.1 ln s + 1, on queries and keys alike.
Dynamic NTK (the same, section 3.3): the factor is max(1, l / L), so it is 1 in the form engines write.
LongRoPE (arXiv 2402.13753) also leaves the first few tokens unscaled, which no checkpoint states.
"""

from __future__ import annotations

from ropewalk.checkpoints.engines.base import Reading, yarn_of
from ropewalk.checkpoints.engines.draft import Draft
from ropewalk.checkpoints.engines.facts import Facts
from ropewalk.checkpoints.resolve.resolved import Resolved
from ropewalk.scaling import Dynamic, YaRN

TITLES = {"yarn": ("YaRN paper", "arXiv 2309.00071"), "dynamic": ("dynamic NTK, paper", "arXiv 2309.00071")}


def read(resolved: Resolved) -> Reading | None:
    """None where no paper differs from what is shipped."""
    draft = Draft()
    title: tuple[str, str] | None = None
    for subject in Facts(resolved).subjects():
        scaling = subject.layer.scaling
        # Between equal betas the paper's ramp divides by zero.
        if isinstance(scaling, YaRN) and scaling.beta_slow < scaling.beta_fast:
            title = TITLES["yarn"]
            used = yarn_of(
                scaling,
                ramp="paper",
                dialect="paper",
                truncate=True,
                attention_factor=None,
                mscale=None,
                mscale_all_dim=None,
            )
            draft.layers.append(subject.numbers_of(used))
        elif isinstance(scaling, Dynamic):
            title = TITLES["dynamic"]
            draft.layers.append(subject.numbers_of(Dynamic(factor=1.0, trained=scaling.trained)))
        else:
            draft.layers.append(subject.planned())
    return (
        None if title is None else draft.reading(*title, switch="static" if title[0] == "YaRN paper" else "by length")
    )
