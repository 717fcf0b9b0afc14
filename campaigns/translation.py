"""English to German (or Chinese) by the encoder-decoder of 2017, against two baselines that need no training.

    ropewalk data prepare en-de --out data/en-de
    ropewalk train translate-en-de --out runs/translate-en-de
    python -m campaigns.translation runs/translate-en-de [--pairs 1000] > campaigns/results/translation.json

Held-out pairs share no source sentence with training (`data prepare` sees to it). Copying says the source; nearest says
the translation of the training source that is most alike by character 3-grams (cosine of tf-idf). BLEU and chrF are
sacreBLEU's. The model is the mean of the run's last checkpoints, as in 2017 (arXiv:1706.03762, 6.1); the last one alone
stands beside it. The text is of software and games: these figures say nothing about news.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import bars
from ropewalk.checkpoints.load.model import load
from ropewalk.data.layout import describe
from ropewalk.data.stored import Documents
from ropewalk.distributed.world import World
from ropewalk.models import Transformer, complete
from ropewalk.overrides import load as load_recipe
from ropewalk.train.checkpoint.store import Checkpoints
from ropewalk.train.config import Recipe
from ropewalk.train.metrics import read
from ropewalk.train.optim import optimizers

COMMAND = "python -m campaigns.translation RUN --pairs {pairs}"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("run", type=Path)
    options.add_argument("--pairs", type=int, default=1000)
    options.add_argument("--beams", type=int, default=4)
    given = options.parse_args()
    result = measure(given.run, given.pairs, given.beams)
    return bars.tell(result, as_json=True)


def measure(run: Path, pairs: int, beams: int) -> dict[str, Any]:
    import sacrebleu
    from tokenizers import Tokenizer

    recipe = load_recipe(Recipe, run / "recipe.yaml")
    folder = Path(recipe.data.path)
    about = describe(folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def texts(split: str, stream: str, count: int | None = None) -> list[list[int]]:
        documents = Documents(folder, split, stream, about)
        count = documents.documents if count is None else min(count, documents.documents)
        bounds = documents.bounds(0, count)
        return [documents.span(int(a), int(b)).tolist()[1:-1] for a, b in pairwise(bounds)]

    def spoken(ids: list[list[int]]) -> list[str]:
        return [text.strip() for text in tokenizer.decode_batch(ids)]

    sources, wanted = texts("valid", "source", pairs), spoken(texts("valid", "target", pairs))
    known, answers = spoken(texts("train", "source")), spoken(texts("train", "target"))
    mean, steps = averaged(run, recipe)
    said = {
        "model": spoken(translate(mean, sources, about["special"], beams)),
        "last checkpoint": spoken(translate(load(run / "export"), sources, about["special"], beams)),
        "copy": spoken(sources),
        "nearest": [answers[n] for n in nearest(known, spoken(sources))],
    }
    overlap = set(known) & set(spoken(sources))
    language = "zh" if any("\u4e00" <= letter <= "\u9fff" for letter in "".join(wanted[:100])) else "13a"
    scores = {
        name: {
            "bleu": sacrebleu.corpus_bleu(found, [wanted], tokenize=language).score,
            "chrf": sacrebleu.corpus_chrf(found, [wanted]).score,
        }
        for name, found in said.items()
    }
    others = ("copy", "nearest")
    found = {
        f"{score} over the better baseline's, at least": bars.bar(
            scores["model"][score] / max(1e-9, *(scores[name][score] for name in others)), 1.0, at_least=True
        )
        for score in ("bleu", "chrf")
    }
    found["held-out sources that are in training, at most"] = bars.bar(len(overlap), 0, at_least=False)
    every = max(1, len(wanted) // 10)
    shown = [
        {"source": s, "wanted": w, **{name: found[n] for name, found in said.items()}}
        for n, (s, w) in enumerate(zip(spoken(sources), wanted, strict=True))
        if n % every == 0
    ][:10]
    records = read(run / "metrics.jsonl")
    return {
        "command": COMMAND.format(pairs=pairs),
        "domain": "texts of programs and games (gettext catalogues), not news",
        "bars": found,
        "scores": scores,
        "sacrebleu": f"tokenize={language}, version {sacrebleu.__version__}; beams {beams}",
        "pairs": {"held out": len(wanted), "training": len(known)},
        "training": {
            "steps": records["train"][-1]["step"],
            "averaged": steps,
            "seconds": round(sum(record["seconds"] for record in records["train"])),
            "validation": records["valid"][-1]["loss"],
        },
        "examples": shown,
        "recipe": recipe.model_dump(mode="json", exclude={"data": {"path"}}),
        "versions": bars.versions(("sacrebleu", "tokenizers", "grain")),
    }


def averaged(run: Path, recipe: Recipe) -> tuple[Transformer, list[int]]:
    """The mean of the checkpoints that are kept, and their steps."""
    model, checkpoints = Transformer(recipe.model).eval(), Checkpoints(run / "checkpoints", World.start())
    made = optimizers(recipe.train.optimizer, model, 1.0)
    found: dict[int, dict[str, torch.Tensor]] = {}
    for one in checkpoints.verified():
        checkpoints.load(one, model, made)
        found[one.step] = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    means = {name: torch.stack([each[name] for each in found.values()]).mean(0) for name in model.state_dict()}
    model.load_state_dict(means)
    return model, sorted(found)


def translate(model: Any, sources: list[list[int]], special: dict[str, int], beams: int) -> list[list[int]]:
    """Sorted by length, so that a batch wastes little."""
    found: dict[int, list[int]] = {}
    order = sorted(range(len(sources)), key=lambda n: len(sources[n]))
    for start in range(0, len(order), 16):
        rows = order[start : start + 16]
        prompts = [[*sources[n], special["end"]] for n in rows]
        limit = 2 * max(map(len, prompts)) + 16
        settings: dict[str, Any] = {"max_tokens": limit, "stop": special["end"], "start": special["start"]}
        with torch.inference_mode():
            done = complete(model, prompts, beams=beams, **settings)
        for n, tokens in zip(rows, done, strict=True):
            found[n] = [token for token in tokens if token != special["end"]]
        print(f"translated {len(found)} of {len(sources)}", file=sys.stderr, flush=True)
    return [found[n] for n in range(len(sources))]


def nearest(known: list[str], asked: list[str]) -> list[int]:
    """For each, the training source most like it: cosine of tf-idf over character 3-grams."""

    def grams(text: str) -> Counter[str]:
        padded = f"  {text.lower()} "
        return Counter(padded[n : n + 3] for n in range(len(padded) - 2))

    postings: dict[str, list[tuple[int, float]]] = defaultdict(list)
    counted = [grams(text) for text in known]
    spread = Counter(gram for one in counted for gram in one)
    idf = {gram: math.log(len(known) / count) for gram, count in spread.items()}
    for number, one in enumerate(counted):
        weights = {gram: count * idf[gram] for gram, count in one.items()}
        size = math.sqrt(sum(weight**2 for weight in weights.values())) or 1.0
        for gram, weight in weights.items():
            postings[gram].append((number, weight / size))
    index = {
        gram: (np.array([n for n, _ in found]), np.array([w for _, w in found], np.float32))
        for gram, found in postings.items()
    }
    best = []
    for text in asked:
        score = np.zeros(len(known), np.float32)
        for gram, count in grams(text).items():
            if gram in index:
                numbers, weights = index[gram]
                score[numbers] += weights * (count * idf[gram])
        best.append(int(score.argmax()))
    return best


if __name__ == "__main__":
    sys.exit(main())
