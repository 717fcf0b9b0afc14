"""Every encoding in every stack, from `train` to what others read: measured again, inspected, asked, exported."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from torch.nn import functional as F

from ropewalk.checkpoints.load.model import load
from ropewalk.data.open import open_data
from ropewalk.data.prepare.sample import sample
from ropewalk.encodings.find import names
from ropewalk.models import Transformer, TransformerConfig
from ropewalk.train.config import Recipe
from ropewalk.train.run import train
from tests.cli.conftest import Ropewalk

STACKS = ("decoder", "encoder", "encoder-decoder")
SETTINGS: dict[str, dict[str, Any]] = {
    "learned": {"longest": 40},
    "temperature": {"trained": 8},
    "chain": {"parts": [{"kind": "rope"}, {"kind": "temperature", "trained": 8}]},
}
ONE_WAY = "is defined for keys up to the query only, and an encoder also looks at those after it"
REFUSED = {(kind, stack): ONE_WAY for kind in ("fire", "xpos") for stack in STACKS[1:]}
"""The others are trained below."""
EVERY = [(kind, stack) for kind in names() for stack in STACKS if (kind, stack) not in REFUSED]
PROMPT, LENGTH = "Save the file", 32


def model(kind: str, stack: str) -> dict[str, Any]:
    encoding = {"kind": kind, **SETTINGS.get(kind, {})}
    encoding |= {"bidirectional": True} if kind == "t5" and stack != "decoder" else {}
    return {"stack": stack, "width": 16, "heads": 2, "layers": 1, "hidden": 24, "encoding": encoding}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("data")
    return cache(lambda kind: sample(kind, folder / kind))


@pytest.mark.parametrize(("kind", "stack"), REFUSED, ids=map(" ".join, REFUSED))
def test_what_a_config_refuses(kind: str, stack: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[kind, stack]):
        TransformerConfig.model_validate(model(kind, stack))


@pytest.mark.parametrize(("kind", "stack"), EVERY, ids=map(" ".join, EVERY))
def test_what_is_trained_is_used(
    ropewalk: Ropewalk, prepared: Callable[[str], Path], tmp_path: Path, kind: str, stack: str
) -> None:
    data = prepared("pairs" if stack == "encoder-decoder" else "text")
    said: dict[str, Any] = {"kind": data.name, "path": str(data), "length": LENGTH}
    said |= {"source_length": 40} if data.name == "pairs" else {}
    once = {"steps": 2, "batch": 4 * LENGTH, "evaluate": {"tokens": 4 * LENGTH}, "save": {"every": 2}}
    recipe = Recipe.model_validate({"model": model(kind, stack), "data": said, "train": once})
    measured = train(recipe, tmp_path / "run").valid["loss"]

    found = load("run")
    assert loss(found, recipe) == pytest.approx(measured, rel=1e-5), "what is loaded is not what was measured"
    assert ropewalk("export", "run", "out").code == 0
    assert files(Path("out")) == files(Path("run/export"))

    special = json.loads((data / "data.json").read_text())["special"]
    ids = tokenizers.Tokenizer.from_file(str(data / "tokenizer.json")).encode(PROMPT).ids
    shown = ropewalk("inspect", "run", "--json").data
    assert shown["model_type"] == ("llama" if (kind, stack) == ("rope", "decoder") else "ropewalk")
    if stack == "encoder":
        check_encoded(found, [special["start"], *ids, special["end"]])
    else:
        options = ("--prompt", PROMPT, "--max-tokens", "4", "--temperature", "0", "--json")
        (answer,) = ropewalk("generate", "run", *options).data
        assert answer["tokens"] == written(found, ids, special)
    check_tokenizer(stack, special, ids)
    if (kind, stack) == ("rope", "decoder"):
        check_transformers(found, [special["start"], *ids], special)


def loss(found: Transformer, recipe: Recipe) -> float:
    """On the sequences that the run was measured on, in the words of plain torch."""
    data = open_data(recipe.data, stack=recipe.model.stack, seed=recipe.train.seed)
    batch = data.batch("valid", 0, rows=min(4, data.rows("valid")))
    more = {} if batch.source is None else {"source": batch.source, "source_at": batch.source_at}
    with torch.no_grad():
        logits = found(batch.tokens, batch.at, **more)
    return float(F.cross_entropy(logits.flatten(0, 1), batch.target.flatten()))


def written(found: Transformer, ids: list[int], special: dict[str, int]) -> list[int]:
    """The likeliest tokens, each by a whole pass without a cache."""
    source = torch.tensor([[*ids, special["end"]]])
    text = [special["start"]] if found.encoder else [special["start"], *ids]
    start = len(text)
    while len(text) < start + 4 and text[-1] != special["end"]:
        more = {"source": source} if found.encoder else {}
        with torch.no_grad():
            text.append(int(found(torch.tensor([text]), **more)[0, -1].argmax()))
    return text[start:]


def check_encoded(found: Transformer, ids: list[int]) -> None:
    """An encoder's answer to a masked token depends on what comes after it."""
    other = [*ids[:-2], ids[-2] + 1, ids[-1]]
    with torch.no_grad():
        one, two = found(torch.tensor([ids])), found(torch.tensor([other]))
    assert one.shape == (1, len(ids), found.config.vocabulary)
    assert bool(one.isfinite().all())
    assert not torch.equal(one[0, 1], two[0, 1])


def check_tokenizer(stack: str, special: dict[str, int], ids: list[int]) -> None:
    """As transformers reads it, and as config.json says it where the model is ropewalk's own."""
    theirs = transformers.AutoTokenizer.from_pretrained("run/export")
    mask = special["mask"] if stack == "encoder" else None
    got = (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id, theirs.mask_token_id)
    assert got == (special["start"], special["end"], special["end"], mask)
    before = [] if stack == "encoder-decoder" else [special["start"]]
    after = [] if stack == "decoder" else [special["end"]]
    assert theirs(PROMPT).input_ids == [*before, *ids, *after]
    config = json.loads(Path("run/export/config.json").read_text())
    assert (config["bos_token_id"], config["eos_token_id"]) == (special["start"], special["end"])
    if config["model_type"] == "ropewalk":
        assert (config["pad_token_id"], config.get("mask_token_id")) == (special["end"], mask)
        assert (config["trained_length"], config.get("trained_source_length")) == (
            LENGTH,
            40 if stack == "encoder-decoder" else None,
        )
        assert config.get("decoder_start_token_id") == (special["start"] if stack == "encoder-decoder" else None)


def check_transformers(found: Transformer, ids: list[int], special: dict[str, int]) -> None:
    theirs = transformers.AutoModelForCausalLM.from_pretrained("run/export")
    assert (theirs.config.bos_token_id, theirs.config.eos_token_id) == (special["start"], special["end"])
    assert theirs.config.max_position_embeddings == LENGTH
    with torch.no_grad():
        torch.testing.assert_close(theirs(torch.tensor([ids])).logits, found(torch.tensor([ids])), rtol=0, atol=1e-5)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
