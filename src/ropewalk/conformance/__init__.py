"""A conformance suite for position code: the spec, the checks, and the targets they run on.

    from ropewalk.conformance import Spec, verify

    class target:
        spec = Spec(head_width=64, base=10_000, layout="half")
        build = staticmethod(lambda dtype=torch.float32, device="cpu": MyRotary(64).to(device, dtype))
        rotate = staticmethod(lambda rotary, x, positions: rotary(x, positions))

    verify(target).raise_for_failures()

The truth comes from the papers' equations in integers and decimals (`oracles`), never from the rest of ropewalk.
"""

from __future__ import annotations

from ropewalk.conformance.findings import Findings, NotApplicable, Result
from ropewalk.conformance.run import Report, verify
from ropewalk.conformance.target import Spec, Target, find

__all__ = ["Findings", "NotApplicable", "Report", "Result", "Spec", "Target", "find", "verify"]
