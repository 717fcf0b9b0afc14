"""Measurements kept under the hash of what was measured: nothing is computed twice, and a killed run continues.

One line of JSON a measurement, appended and flushed: a line that a kill cut in half is skipped when it is read. The key
is a hash of engine, weights, passage and scaling; the texts themselves are never stored.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from ropewalk.evaluate.passage import Engine, Nats, Numbers, Passage, described
from ropewalk.scaling import Scaling

ANSWERS = 2
"""Raised when an engine answers the same question otherwise than before: what older ones answered is not taken."""


class Stored:
    """An engine that answers from a file what it has answered before. It is an engine itself."""

    def __init__(self, engine: Engine, file: Path | None) -> None:
        self.engine, self.file = engine, file
        self.name, self.model = engine.name, engine.model
        self.trained, self.vocabulary = engine.trained, engine.vocabulary
        self.known: dict[str, Nats] = {} if file is None else _read(file)
        self.computed = 0
        """Passages that were computed and not found in the file."""

    def nats(self, passage: Passage, scaling: Scaling | None = None) -> Nats:
        key = self.key(passage, scaling)
        return self.known[key] if key in self.known else self.keep(key, self.engine.nats(passage, scaling))

    def choices(self, passage: Passage, candidates: Numbers, scaling: Scaling | None = None) -> Nats:
        key = self.key(passage, scaling, candidates)
        if key not in self.known:
            self.keep(key, self.engine.choices(passage, candidates, scaling))
        return self.known[key]

    def key(self, passage: Passage, scaling: Scaling | None, candidates: Numbers | None = None) -> str:
        """What an answer is kept under; candidates: of `choices`."""
        what = "nats" if candidates is None else f"choices {candidates.tolist()}"
        named: Any = [what, ANSWERS, self.name, self.model, passage.digest, described(scaling)]
        return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()

    def keep(self, key: str, nats: Nats) -> Nats:
        """An answer that was computed here or elsewhere."""
        if not np.isfinite(nats).all():
            raise ValueError(f"{self.name} gave likelihoods that are not finite; nothing was stored")
        self.known[key] = nats
        self.computed += 1
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            packed = base64.b64encode(np.ascontiguousarray(nats, "<f8").tobytes()).decode()
            with self.file.open("a", encoding="ascii") as out:
                out.write(json.dumps({"key": key, "shape": nats.shape, "nats": packed}) + "\n")
                out.flush()
                os.fsync(out.fileno())
        return nats


def _read(file: Path) -> dict[str, Nats]:
    known: dict[str, Nats] = {}
    if not file.exists():
        return known
    text = file.read_text(encoding="ascii", errors="replace")
    for line in text.splitlines():
        try:
            kept = json.loads(line)
            found = np.frombuffer(base64.b64decode(kept["nats"]), "<f8").reshape(kept["shape"])
        except (ValueError, KeyError, TypeError):
            continue  # cut by a kill
        known[kept["key"]] = found
    if text and not text.endswith("\n"):
        with file.open("a", encoding="ascii") as out:
            out.write("\n")  # so that the next line is not joined to what was cut
    return known
