"""Our likelihoods against transformers' on the same weights, and under scalings, far positions and small pieces."""

from __future__ import annotations

import hashlib
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import ropewalk as rw
from ropewalk.evaluate.checkpoint import _with_sources, digest
from ropewalk.evaluate.engines import by_logits
from ropewalk.evaluate.engines.ours import Ours, scaled, under
from ropewalk.evaluate.passage import Passage
from ropewalk.scaling import Linear, YaRN

YARN = YaRN(factor=4, trained=64)


def tiny(folder: Path, **more: object) -> transformers.LlamaForCausalLM:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, initializer_range=0.3, **more,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    model.save_pretrained(folder)
    return model


def nats(model: transformers.LlamaForCausalLM, tokens: np.ndarray, scored: int) -> np.ndarray:
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens)[None]).logits[0].double()
    every = torch.nn.functional.cross_entropy(logits[:-1], torch.from_numpy(tokens)[1:], reduction="none")
    return every[-scored:].numpy()


TOKENS = np.random.default_rng(1).integers(0, 97, 200)


def test_they_are_those_of_transformers(tmp_path: Path) -> None:
    theirs = tiny(tmp_path)
    engine = Ours(rw.load(tmp_path), model="tiny")
    assert engine.trained == 64
    for count, scored in ((200, 199), (64, 10), (2, 1)):
        found = engine.nats(Passage.plain(TOKENS[:count], scored))
        assert np.abs(found - nats(theirs, TOKENS[:count], scored)).max() < 2e-4


def test_a_scaling_is_that_of_transformers_and_shares_the_weights(tmp_path: Path) -> None:
    tiny(tmp_path)
    plain = rw.load(tmp_path)
    said = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "rope_theta": 10000.0}
    config = transformers.LlamaConfig.from_pretrained(tmp_path, rope_parameters=said)
    theirs = transformers.LlamaForCausalLM.from_pretrained(tmp_path, config=config).eval()
    engine = Ours(plain, model="tiny")
    passage = Passage.plain(TOKENS, 60)
    before = engine.nats(passage)
    assert np.abs(engine.nats(passage, YARN) - nats(theirs, TOKENS, 60)).max() < 2e-4
    assert np.abs(engine.nats(passage, YARN) - before).max() > 0.1
    assert np.array_equal(engine.nats(passage), before)
    assert under(plain, YARN).tokens.weight.data_ptr() == plain.tokens.weight.data_ptr()


def test_far_positions_change_nothing_and_gaps_do(tmp_path: Path) -> None:
    tiny(tmp_path)
    engine = Ours(rw.load(tmp_path), model="tiny")
    near = engine.nats(Passage.plain(TOKENS, 60))
    far = engine.nats(Passage(TOKENS, np.arange(200) + 10**9, 60))
    assert np.abs(near - far).max() < 1e-4
    gap = engine.nats(Passage(TOKENS, np.r_[np.arange(100), np.arange(100) + 5000], 60))
    assert np.abs(near - gap).max() > 0.05


def test_pieces_of_logits_are_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny(tmp_path)
    engine = Ours(rw.load(tmp_path), model="tiny")
    whole = engine.nats(Passage.plain(TOKENS, 150))
    monkeypatch.setattr(by_logits, "LOGITS", 97 * 7)
    assert np.abs(engine.nats(Passage.plain(TOKENS, 150)) - whole).max() < 1e-5
    every = engine.choices(Passage.plain(TOKENS, 150), np.arange(97))
    assert np.abs(every[np.arange(150), TOKENS[-150:]] - whole).max() < 1e-5
    assert np.exp(-every).sum(1) == pytest.approx(np.ones(150), abs=1e-5)


def test_a_uniform_model(tmp_path: Path) -> None:
    tiny(tmp_path)
    model = rw.load(tmp_path)
    assert model.head is not None
    torch.nn.init.zeros_(model.head.weight)
    assert Ours(model, model="uniform").nats(Passage.plain(TOKENS, 199)) == pytest.approx(math.log(97), abs=1e-6)


def test_windowed_layers_are_left_as_they_are() -> None:
    kinds = {"local": {"window": 8}, "global": {}}
    layers = {"count": 3, "pattern": ["local", "global"], "kinds": kinds}
    config = scaled(rw.preset("llama", vocabulary=9, width=32, heads=2, key_heads=2, hidden=64, layers=layers), YARN)
    assert [layer.encoding.scaling for layer in config.layer_kinds()] == [None, YARN, None]
    alibi = rw.TransformerConfig(vocabulary=9, width=32, heads=2, encoding="alibi")
    with pytest.raises(ValueError, match="this model uses alibi"):
        scaled(alibi, YARN)


def test_a_scaling_reaches_a_rotation_in_a_chain() -> None:
    """Also where other layers rotate alone: half of a model under a scaling would be measured as all of it."""
    temperature = {"kind": "temperature", "trained": 64}

    def config(scaling: YaRN | None) -> rw.TransformerConfig:
        rope = {"kind": "rope", "scaling": scaling}
        chain = {"kind": "chain", "parts": [rope, temperature]}
        kinds = {"plain": {"encoding": rope}, "hot": {"encoding": chain}, "cold": {"encoding": None}}
        layers = {"count": 3, "pattern": [*kinds], "kinds": kinds}
        return rw.TransformerConfig(vocabulary=97, width=32, heads=2, hidden=32, layers=layers)

    torch.manual_seed(0)
    model = rw.Transformer(config(None)).eval()
    want = rw.Transformer(config(YARN)).eval()
    want.load_state_dict(model.state_dict())
    passage = Passage.plain(TOKENS, 60)
    found = Ours(model, model="chain").nats(passage, YARN)
    assert np.array_equal(found, Ours(want, model="scaled").nats(passage))
    assert np.abs(found - Ours(model, model="chain").nats(passage)).max() > 1e-4
    alone = config(None).model_copy(update={"layers": 2, "encoding": config(None).layer_kinds()[1].encoding})
    assert scaled(alone, YARN).encoding.parts[0].scaling == YARN


def test_tokens_of_another_tokenizer_and_encoders_are_refused(tmp_path: Path) -> None:
    tiny(tmp_path)
    with pytest.raises(ValueError, match="whose tokenizer is this"):
        Ours(rw.load(tmp_path), model="tiny").nats(Passage.plain(TOKENS + 90, 10))
    with pytest.raises(ValueError, match="this model is encoder"):
        Ours(rw.Transformer(rw.preset("bert", vocabulary=9, width=32, heads=2, hidden=64, layers=1)), model="x")


def test_a_scaling_of_frequencies_that_come_from_no_base_is_refused() -> None:
    """It would change nothing, or the gain alone, and be called neutral."""
    own = {"kind": "rope", "frequencies": ["1", "0.1", "0.01", "0.001"]}
    model = rw.Transformer(rw.TransformerConfig(vocabulary=97, width=16, heads=2, hidden=16, layers=1, encoding=own))
    engine, passage = Ours(model.eval(), model="own"), Passage.plain(TOKENS[:60], 20)
    assert np.isfinite(engine.nats(passage)).all()
    for scaling in (YARN, Linear(factor=8)):
        with pytest.raises(ValueError, match="changes the frequencies of a base, and these are one's own"):
            engine.nats(passage, scaling)


@pytest.mark.timeout(60)
def test_a_digest_reads_the_files_of_a_directory_alone(tmp_path: Path) -> None:
    """A pipe, a device or a link to one would be read for ever; a view of the hub's cache is read."""
    (tmp_path / "model").mkdir()
    tiny(tmp_path / "model")
    before = digest(tmp_path / "model")
    os.mkfifo(tmp_path / "model" / "a.safetensors")
    (tmp_path / "model" / "b.safetensors").symlink_to("/dev/zero")
    (tmp_path / "model" / "c.gguf").mkdir()
    (tmp_path / "model" / "d.safetensors").symlink_to("nowhere")
    assert digest(tmp_path / "model") == before
    blobs, view = tmp_path / "cache" / "blobs", tmp_path / "cache" / "snapshots" / "1"
    shutil.copytree(tmp_path / "model", blobs, ignore=shutil.ignore_patterns("[a-d].*"))
    view.mkdir(parents=True)
    for file in blobs.iterdir():
        (view / file.name).symlink_to(file)
    assert digest(view) == before
    (tmp_path / "model" / "model.safetensors").write_bytes(b"other")
    assert digest(tmp_path / "model") != before


def test_a_digest_follows_a_link_to_weights_elsewhere(tmp_path: Path) -> None:
    """transformers reads them: measurements of one model were taken for those of the next that the link led to."""
    (tmp_path / "model").mkdir()
    tiny(tmp_path / "model")
    before = digest(tmp_path / "model")
    shutil.move(tmp_path / "model" / "model.safetensors", tmp_path / "a.safetensors")
    (tmp_path / "b.safetensors").write_bytes(b"other")
    (tmp_path / "model" / "model.safetensors").symlink_to("../a.safetensors")
    assert digest(tmp_path / "model") == before
    (tmp_path / "model" / "model.safetensors").unlink()
    (tmp_path / "model" / "model.safetensors").symlink_to("../b.safetensors")
    assert digest(tmp_path / "model") != before


def test_a_file_is_the_same_model_under_any_name(tmp_path: Path) -> None:
    """And the digest is what sha256sum prints."""
    file = tmp_path / "model.gguf"
    file.write_bytes(b"some weights")
    before = digest(file)
    assert before == hashlib.sha256(b"some weights").hexdigest()
    assert digest(file.rename(tmp_path / "other.gguf")) == before


def test_measurements_of_an_encoding_of_ones_own_are_those_of_its_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint names the class, and the class changes."""
    code = (
        "from typing import Literal\n\nfrom ropewalk import encodings\n\n\nclass Near(encodings.ALiBi):\n"
        '    class Config(encodings.ALiBi.Config):\n        kind: Literal["nearby_pkg.Near"] = "nearby_pkg.Near"\n'
    )
    (tmp_path / "nearby_pkg.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    model = rw.TransformerConfig(vocabulary=9, width=16, heads=2, hidden=16, layers=1, encoding="nearby_pkg.Near")
    names = []
    for said in ("", "# changed\n"):
        (tmp_path / "nearby_pkg.py").write_text(code + said)
        names += [_with_sources(weights, rw.Transformer(model)) for weights in ("some", "other")]
    assert len({*names}) == 4
    plain = rw.TransformerConfig(vocabulary=9, width=16, heads=2, hidden=16, layers=1)
    assert _with_sources("some", rw.Transformer(plain)) == "some"
