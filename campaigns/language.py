"""A decoder on long English documents beside transformers' Llama: the same sizes, tokens, order, optimizer, schedule.

    ropewalk data prepare long-english --vocabulary 512 --valid-fraction 0.04 --out data/long-english
    python -m campaigns.language data/long-english [--tokens 3M] [--seed 0] > campaigns/results/language.json

Both are compiled and trained in one process, a few steps of one and then of the other, so that whatever else the
machine does slows both. Sequences are cut from the text as it runs, which is what Llama's code can express. Bits per
byte is of the same validation sequences. Each model starts as its own library starts it; a second seed of ours says how
much is chance. With a small vocabulary a few million tokens are enough for a model to use its context: the fall is the
loss at positions of the second sixteenth of a sequence less that of its last quarter, its interval is over sequences.
The two places hold other tokens, which differ by more than context is worth; so the tokens of the last quarter are also
read at the positions of the second sixteenth, in windows of an eighth of the length that end there: same tokens, same
model, less context. That fall has the bar.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks import bars
from ropewalk.data.batch import Batch
from ropewalk.data.open import Data, open_data
from ropewalk.distributed.world import World
from ropewalk.evaluate.by_position import by_position
from ropewalk.evaluate.statistics import paired
from ropewalk.overrides import load
from ropewalk.positions import plain
from ropewalk.train.config import Recipe
from ropewalk.train.objective import dropout_key_of, learner
from ropewalk.train.optim import optimizers, set_rates
from ropewalk.train.plan.sizes import sizes
from ropewalk.train.run import fitted

RECIPE = Path(__file__).parents[1] / "src" / "ropewalk" / "recipes" / "decoder.yaml"
TURN = 5
"""Steps of one model before it is the other's turn."""
VALID_SEQUENCES = 512
FALL = 0.05
"""Nats that a model which uses its context gains, at least."""


class Trainee:
    """One model with its optimizer; `loss(batch)` is a sum, with `each` those of the tokens."""

    def __init__(self, model: Any, recipe: Recipe, of: str, rows: int) -> None:
        self.model, self.recipe, self.of, self.rows, self.step = model, recipe, of, rows, 0
        if recipe.train.compile and of == "transformers":
            self.losses = torch.compile(self.losses)
        self.made = optimizers(recipe.train.optimizer, model, recipe.train.peak(recipe.model.width))
        self.seconds: list[float] = []

    def loss(self, batch: Batch, *, each: bool = False) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.recipe.train.precision == "bfloat16"):
            if self.of != "transformers":
                return self.model(
                    batch.tokens, batch.at, batch.target, dropout_key=dropout_key_of(batch, 0, self.step), each=each
                )
            found = self.losses(batch.tokens, batch.target)
            return found if each else found.sum()

    def losses(self, tokens: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Of the tokens, by transformers' model."""
        logits = self.model(tokens).logits.flatten(0, 1)
        return F.cross_entropy(logits, target.flatten(), reduction="none").view(target.shape)

    def update(self, batch: Batch, steps: int) -> None:
        began = time.perf_counter()
        (self.loss(batch) / batch.targets).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.train.clip or float("inf"))
        set_rates(self.made, self.recipe.train.schedule.share(self.step + 1, steps))
        for optimizer in self.made:
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self.seconds.append(time.perf_counter() - began)

    @torch.no_grad()
    def measured(self, data: Data) -> dict[str, Any]:
        self.model.eval()
        count = min(VALID_SEQUENCES, data.rows("valid")) // self.rows
        batches = (data.batch("valid", n, rows=self.rows) for n in range(count))
        falls: dict[str, list[float]] = {"as the text runs": [], "on the same tokens": []}

        def each(batch: Batch) -> torch.Tensor:
            losses = self.loss(batch, each=True)
            early = self.loss(shortened(batch), each=True).view(len(losses), -1, data.length // 8)
            late = losses[:, -(data.length // 4) :].float().mean(-1)
            near = losses[:, data.length // 16 : data.length // 8].float().mean(-1)
            falls["as the text runs"].extend((near - late).tolist())
            falls["on the same tokens"].extend((early[..., data.length // 16 :].float().mean((1, 2)) - late).tolist())
            return losses

        found = by_position(each, batches, length=data.length, token_bytes=data.token_bytes)
        self.model.train()
        return found | {"fall": {name: paired(values).to_dict() for name, values in falls.items()}}


def shortened(batch: Batch) -> Batch:
    """Windows of an eighth of the length, four a sequence; their second halves are together its last quarter."""
    length = batch.tokens.shape[-1]
    ends = range(length * 13 // 16, length + 1, length // 16)

    def cut(tokens: torch.Tensor) -> torch.Tensor:
        return torch.stack([tokens[:, end - length // 8 : end] for end in ends], 1).flatten(0, 1)

    tokens = cut(batch.tokens)
    at = plain(length // 8, batch=len(tokens), limit=length)
    return Batch(tokens, at, cut(batch.target), batch.sample.repeat_interleave(len(ends)))


def llama(recipe: Recipe) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    model = recipe.model
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=model.vocabulary,
            hidden_size=model.width,
            intermediate_size=model.hidden,
            num_hidden_layers=len(model.layer_kinds()),
            num_attention_heads=model.heads,
            num_key_value_heads=model.key_heads,
            rms_norm_eps=model.norm.eps,
            tie_word_embeddings=model.tie,
            rope_theta=10_000.0,
            use_cache=False,
            attn_implementation="sdpa",
        )
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data")
    options.add_argument("--tokens", default="3M")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument(
        "--second-seed", action=argparse.BooleanOptionalAction, default=True, help="ours again with the next seed"
    )
    options.add_argument("changes", nargs="*", help="KEY=VALUE")
    given = options.parse_intermixed_args()
    changes = [f"data.path={given.data}", "data.isolate=false", f"train.tokens={given.tokens}"]
    recipe = load(Recipe, RECIPE, [*changes, f"train.seed={given.seed}", *given.changes])
    result = compare(recipe, again=given.second_seed)
    said = f"python -m campaigns.language DATA --tokens {given.tokens} --seed {given.seed}"
    result["command"] = " ".join([said, *([] if given.second_seed else ["--no-second-seed"]), *given.changes])
    return bars.tell(result, as_json=True)


def compare(recipe: Recipe, *, again: bool) -> dict[str, Any]:
    data = open_data(recipe.data, stack="decoder", seed=recipe.train.seed)
    recipe = recipe.model_copy(update={"model": fitted(recipe.model, data)})
    cut = sizes(recipe.train, data.length, 1)
    seed, another = recipe.train.seed, recipe.train.seed + 1
    ours = partial(learner, recipe.model, World.start(), compiled=recipe.train.compile)
    torch.manual_seed(seed)
    built = {"ropewalk": ours(seed=seed), "transformers": llama(recipe)}
    if again:
        built[f"ropewalk, seed {another}"] = ours(seed=another)
    trainees = {name: Trainee(model, recipe, name, cut.rows) for name, model in built.items()}
    counts = {name: sum(p.numel() for p in t.model.parameters()) for name, t in trainees.items()}
    if len(set(counts.values())) != 1:
        raise SystemExit(f"the models are not of one size: {counts}")
    for first in range(0, cut.steps, TURN):
        numbers = range(first, min(first + TURN, cut.steps))
        batches = [data.batch("train", number, rows=cut.rows) for number in numbers]
        for trainee in trainees.values():
            for batch in batches:
                trainee.update(batch, cut.steps)
        if first % (10 * TURN) == 0:
            print(f"step {first + TURN} of {cut.steps}", file=sys.stderr, flush=True)
    valid = {name: trainee.measured(data) for name, trainee in trainees.items()}
    bits = {name: found["bits_per_byte"] for name, found in valid.items()}
    chance = {"between two seeds of ours": abs(bits["ropewalk"] - bits[f"ropewalk, seed {another}"])} if again else {}
    pairs = zip(trainees["transformers"].seconds[1:], trainees["ropewalk"].seconds[1:], strict=True)
    faster = statistics.median(theirs / ours for theirs, ours in pairs)
    apart = bits["ropewalk"] - bits["transformers"]
    fall = valid["ropewalk"]["fall"]["on the same tokens"]
    return {
        "bars": {
            "bits per byte above transformers', at most": bars.bar(apart, 0.02, at_least=False),
            "times transformers' speed, at least": bars.bar(faster, 1.0, at_least=True),
            "nats gained by context on the same tokens, lower end, at least": bars.bar(
                fall["low"], FALL, at_least=True
            ),
        },
        "bits_per_byte": bits,
        **chance,
        "valid": valid,
        "training": {"steps": cut.steps, "tokens": cut.steps * cut.batch, "parameters": counts["ropewalk"]},
        "seconds": {name: round(sum(trainee.seconds)) for name, trainee in trainees.items()},
        "recipe": recipe.model_dump(mode="json", exclude={"data": {"path"}}),
        "versions": bars.versions(("transformers", "grain")),
    }


if __name__ == "__main__":
    sys.exit(main())
