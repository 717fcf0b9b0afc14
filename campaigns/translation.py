"""English to German by the encoder-decoder of 2017, on test pairs never looked at, against two untrained baselines.

    ropewalk data fetch en-de --out data/fetched
    python -m campaigns.translation split data/fetched/en-de.tsv data/split
    ropewalk data prepare data/split/rest.tsv --kind pairs --vocabulary 4000 --valid-fraction 0.02 --out data/en-de
    ropewalk train translate-en-de --out runs/1 data.path=data/en-de train.seed=1     # and 2, 3
    mkdir models; ropewalk export runs/1 models/1 --average 5                           # and 2, 3
    python -m campaigns.translation score data/split runs models > campaigns/results/translation.json

The test pairs are those whose source has a hash in [0.02, 0.04): `data prepare` takes its validation pairs from
[0, 0.02), so no pair that any setting was chosen on is among them, and no source is on both sides. The models are what
`ropewalk export --average` writes, loaded as a user loads them. The baseline `copy` repeats the source; `nearest` takes
the translation of the training source that is most alike by character 3-grams (cosine of tf-idf). BLEU, chrF and the
paired bootstrap over pairs, each seed against `nearest`, are sacreBLEU's. The text is of software and games: these
figures say nothing about news.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import bars
from campaigns import pieces
from ropewalk.checkpoints.load.model import load
from ropewalk.models import complete
from ropewalk.overrides import load as load_recipe
from ropewalk.train.config import Recipe
from ropewalk.train.metrics import read

SOURCES = ("campaigns/translation.py", "src/ropewalk/recipes/translate-en-de.yaml")
TEST = (0.02, 0.04)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = options.add_subparsers(dest="command", required=True)
    one = commands.add_parser("split", help="separate the test pairs from the rest")
    one.add_argument("pairs", type=Path)
    one.add_argument("out", type=Path)
    one = commands.add_parser("score", help="translate the test pairs and compare with the baselines")
    one.add_argument("split", type=Path)
    one.add_argument("runs", type=Path, help="a folder of runs")
    one.add_argument("models", type=Path, help="a folder of their exports, by the same names")
    one.add_argument("--beams", type=int, default=4)
    given = options.parse_args()
    if given.command == "split":
        print(split(given.pairs, given.out))
        return 0
    return bars.tell(score(given.split, given.runs, given.models, given.beams), as_json=True)


def split(pairs: Path, out: Path) -> dict[str, int]:
    out.mkdir(parents=True)
    held: dict[str, list[str]] = {"test": [], "rest": []}
    for line in pairs.read_text(encoding="utf-8").splitlines(keepends=True):
        source = " ".join(line.split("\t")[0].casefold().split())
        share = int.from_bytes(hashlib.sha256(source.encode()).digest()[:8], "big") / 2**64
        held["test" if TEST[0] <= share < TEST[1] else "rest"].append(line)
    for name, lines in held.items():
        (out / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    return {name: len(lines) for name, lines in held.items()}


def score(folder: Path, runs: Path, models: Path, beams: int) -> dict[str, Any]:
    import sacrebleu
    from sacrebleu.metrics import BLEU, CHRF
    from sacrebleu.significance import PairedTest
    from tokenizers import Tokenizer

    sources, wanted = columns(folder / "test.tsv")
    known, answers = columns(folder / "rest.tsv")
    said = {"nearest": [answers[n] for n in nearest(known, sources)], "copy": sources}
    seeds = sorted(path.name for path in models.iterdir())
    for name in seeds:
        tokenizer, model = Tokenizer.from_file(str(models / name / "tokenizer.json")), load(models / name)
        special = {name: tokenizer.token_to_id(f"<{name}>") for name in ("start", "end")}
        ids = [one.ids for one in tokenizer.encode_batch(sources, add_special_tokens=False)]
        said[name] = [text.strip() for text in tokenizer.decode_batch(translate(model, ids, special, beams))]
    metrics: dict[str, Any] = {"BLEU": BLEU(references=[wanted]), "chrF2": CHRF(references=[wanted])}
    # The first is the baseline of the paired bootstrap.
    _, found = PairedTest(list(said.items()), metrics, [wanted], test_type="bs", n_samples=1000)()
    scores: dict[str, dict[str, Any]] = {name: {} for name in said}
    for metric in metrics:
        for name, each in zip(said, found[metric], strict=True):
            numbers = {"score": each.score, "mean": each.mean, "95 % +-": each.ci, "p": each.p_value}
            scores[name][metric] = {key: None if value is None else float(value) for key, value in numbers.items()}
    best = {metric: max(scores[name][metric]["score"] for name in ("nearest", "copy")) for metric in metrics}
    least = {metric: min(scores[name][metric]["score"] for name in seeds) for metric in metrics}
    proved = sum(
        scores[name][metric]["p"] < 0.05 and scores[name][metric]["score"] > best[metric]
        for name in seeds
        for metric in metrics
    )
    overlap = {" ".join(text.casefold().split()) for text in known} & {" ".join(t.casefold().split()) for t in sources}
    shown = range(0, len(sources), max(1, len(sources) // 10))
    return {
        "command": "python -m campaigns.translation score SPLIT RUNS MODELS",
        "domain": "texts of software and games (gettext catalogues), not news",
        "bars": {
            **{
                f"{metric} of the worst seed over the better baseline's, at least": bars.bar(
                    least[metric] / max(1e-9, best[metric]), 1.0, at_least=True
                )
                for metric in metrics
            },
            "seeds and scores above the baselines with p < 0.05, at least": bars.bar(
                proved, len(seeds) * len(metrics), at_least=True
            ),
            "test sources that are in training, at most": bars.bar(len(overlap), 0, at_least=False),
        },
        "scores": scores,
        "sacrebleu": f"version {sacrebleu.__version__}; beams {beams}; paired bootstrap of 1,000 samples",
        "pairs": {"test": len(sources), "training and validation": len(known)},
        "training": {name: trained(runs / name) for name in seeds},
        "recipe": load_recipe(Recipe, runs / seeds[0] / "recipe.yaml", []).model_dump(
            mode="json", exclude={"data": {"path"}}
        ),
        "examples": [
            {"source": sources[n], "wanted": wanted[n], **{name: texts[n] for name, texts in said.items()}}
            for n in shown
        ][:10],
        "sources": pieces.digest(SOURCES),
        "versions": bars.versions(("sacrebleu", "tokenizers")),
    }


def trained(run: Path) -> dict[str, Any]:
    """How long a run took, and its last validation."""
    found = read(run / "metrics.jsonl")
    return {
        "steps": len(found["train"]),
        "minutes": round(sum(step["seconds"] for step in found["train"]) / 60, 1),
        "validation, nats per token": found["valid"][-1]["loss"],
    }


def columns(file: Path) -> tuple[list[str], list[str]]:
    lines = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()]
    return [line[0] for line in lines], [line[1] for line in lines]


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
