"""An encoder that says what masked tokens were, compared with what token frequencies alone would predict.

    ropewalk data prepare long-english --out data/long-english
    ropewalk train encoder --out runs/encoder
    python -m campaigns.masked runs/encoder > campaigns/results/masked.json

The bar is the unigram entropy: the mean of -log p(token) over the same masked tokens, p being the share of the token in
the training text (with one added to every count). Whoever is below it has looked at the tokens around.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import bars
from ropewalk.data.batch import IGNORE
from ropewalk.data.layout import describe
from ropewalk.data.open import open_data
from ropewalk.data.stored import Documents
from ropewalk.overrides import load
from ropewalk.train.config import Recipe
from ropewalk.train.metrics import read


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path)
    result = measure(options.parse_args().run)
    return bars.tell(result, as_json=True)


def measure(run: Path) -> dict[str, Any]:
    recipe = load(Recipe, run / "recipe.yaml")
    folder = Path(recipe.data.path)
    about = describe(folder)
    documents = Documents(folder, "train", "tokens", about)
    counts = np.ones(int(about["vocabulary"]))
    for start in range(0, documents.tokens, 1 << 20):
        span = documents.span(start, min(start + (1 << 20), documents.tokens))
        counts += np.bincount(span, minlength=len(counts))
    surprise = -np.log(counts / counts.sum())
    data = open_data(recipe.data, stack="encoder", seed=recipe.train.seed)
    rows = min(data.rows("valid"), recipe.train.evaluate.tokens // data.length)
    target = np.concatenate([data.batch("valid", n, rows=1).target.numpy().ravel() for n in range(rows)])
    unigram = float(surprise[target[target != IGNORE]].mean())
    records = read(run / "metrics.jsonl")
    loss = records["valid"][-1]["loss"]
    return {
        "command": "python -m campaigns.masked RUN",
        "bars": {"loss over the unigram entropy, at most": bars.bar(loss / unigram, 1.0, at_least=False)},
        "loss": loss,
        "unigram entropy": unigram,
        "masked tokens": int((target != IGNORE).sum()),
        "by step": [{"step": record["step"], "loss": record["loss"]} for record in records["valid"]],
        "training": {
            "steps": records["train"][-1]["step"],
            "seconds": round(sum(record["seconds"] for record in records["train"])),
        },
        "recipe": recipe.model_dump(mode="json", exclude={"data": {"path"}}),
        "versions": bars.versions(("grain", "tokenizers")),
    }


if __name__ == "__main__":
    sys.exit(main())
