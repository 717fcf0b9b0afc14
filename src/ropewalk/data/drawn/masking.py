"""Masked language modelling: 15 % of a text's tokens are asked for; of these 80 % are read as the mask, 10 % as a
random token, 10 % as themselves (arXiv:1810.04805, section 3.1). The marks of a text's start and end never are.
"""

from __future__ import annotations

import numpy as np

from ropewalk.data.batch import IGNORE, Row
from ropewalk.positions import PAD

ASKED, MASKED, RANDOM = 0.15, 0.8, 0.1


class Masking:
    def __init__(self, vocabulary: int, mask: int, special: frozenset[int]) -> None:
        self.mask = mask
        self.special = np.array(sorted(special | {mask}))
        self.ordinary = np.setdiff1d(np.arange(vocabulary), self.special)

    def __call__(self, row: Row, rng: np.random.Generator) -> Row:
        tokens, _, segment = row.side
        asked, how = rng.random(len(tokens)), rng.random(len(tokens))
        other = self.ordinary[rng.integers(len(self.ordinary), size=len(tokens))]
        chosen = (asked < ASKED) & (segment != PAD) & ~np.isin(tokens, self.special)
        read = np.where(how < MASKED, self.mask, np.where(how < MASKED + RANDOM, other, tokens))
        seen = np.where(chosen, read, tokens)
        return row._replace(side=row.side._replace(tokens=seen), target=np.where(chosen, tokens, IGNORE))
