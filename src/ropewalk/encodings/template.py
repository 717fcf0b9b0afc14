"""What `ropewalk init encoding` writes: CONTRIBUTING.md's example as a file of its own, with comments."""

from __future__ import annotations

TEXT = '''"""{name}: a penalty that grows with the logarithm of distance. An example, from no paper.

bias(h, i, j) = -(h / H) ln(1 + |i - j| / slack),   h = 1 .. H
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ropewalk.encodings.base import Claims, Encoding, distance
from ropewalk.positions import Positions


class {name}(Encoding):
    # The settings, as recipes and the command line have them: encoding: {{kind: {kind}, slack: 2.0}}
    class Config(Encoding.Config):
        kind: Literal["{kind}"] = "{kind}"
        slack: float = Field(default=1.0, gt=0)
        """Tokens within which distance costs little."""

    config: Config
    # What it promises; `ropewalk verify {kind}` looks whether it does. Leave out what your encoding does not do.
    claims = Claims(shift_invariant=True)

    # Once a pass: what the sites below need, from the config and the positions alone. Keep nothing on the module.
    def forward(self, at: Positions) -> Tensor:  # (H,)
        return torch.arange(1, self.heads + 1, dtype=torch.float32, device=at.index.device) / self.heads

    # A site: what is added to the score of one query and one key. The others are `embed` and `rotate`; see Encoding.
    def bias(self, table: Tensor, head: Tensor, q_index: Tensor, k_index: Tensor) -> Tensor:
        return -table[head] * torch.log1p(distance(q_index, k_index) / self.config.slack)
'''
