"""What `load` refuses: files that are not the config's model, keys it does not compute, architectures it lacks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from ropewalk import positions
from ropewalk.checkpoints.errors import BadInput
from ropewalk.checkpoints.load.model import load
from ropewalk.checkpoints.load.stream import open_checkpoint
from tests.checkpoints.family_models import BY_NAME, made

Tensors = dict[str, Tensor]
Change = Callable[[Tensors], None]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Each model is made once."""
    done: dict[str, Path] = {}

    def one(name: str) -> Path:
        if name not in done:
            done[name] = tmp_path_factory.mktemp("model")
            made(BY_NAME[name]).save_pretrained(done[name])
        return done[name]

    return one


class Changed:
    """Copies of saved models with tensors or config keys changed."""

    def __init__(self, saved: Callable[[str], Path], folder: Path) -> None:
        self.saved, self.folder = saved, folder

    def __call__(self, name: str, change: Change | None = None, **keys: Any) -> Path:
        place = self.folder / "changed"
        shutil.copytree(self.saved(name), place)
        if change is not None:
            tensors = load_file(place / "model.safetensors")
            change(tensors)
            save_file(tensors, place / "model.safetensors", metadata={"format": "pt"})
        config = json.loads((place / "config.json").read_text())
        (place / "config.json").write_text(json.dumps(config | keys))
        return place


@pytest.fixture
def changed(saved: Callable[[str], Path], tmp_path: Path) -> Changed:
    return Changed(saved, tmp_path)


def without(name: str) -> Change:
    return lambda tensors: tensors.__delitem__(name)


def with_(name: str, tensor: Tensor) -> Change:
    return lambda tensors: tensors.update({name: tensor})


def copied(name: str, of: str, plus: float = 0.0) -> Change:
    return lambda tensors: tensors.update({name: tensors[of] + plus})


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        (
            "Llama 2",
            without("model.layers.1.mlp.up_proj.weight"),
            r"model\.layers\.1\.mlp\.up_proj\.weight: is missing",
        ),
        ("Llama 2", without("lm_head.weight"), r"lm_head\.weight: is missing"),
        ("GPT-2", without("transformer.wpe.weight"), r"transformer\.wpe\.weight: is missing"),
        ("T5", without("decoder.block.2.layer.1.EncDecAttention.v.weight"), r"EncDecAttention\.v\.weight: is missing"),
        ("Llama 2", with_("model.layers.2.mlp.up_proj.weight", torch.ones(96, 64)), r"layers\.2.*belongs to no part"),
        ("Llama 2", with_("model.layers.0.self_attn.q_proj.bias", torch.ones(64)), r"q_proj\.bias: belongs to no part"),
        ("BERT", with_("classifier.weight", torch.ones(2, 64)), r"classifier\.weight: belongs to no part"),
        ("Llama 2", with_("model.norm.weight", torch.ones(65)), r"has shape \(65,\), the config says \(64,\)"),
        ("Llama 2", with_("model.norm.weight", torch.ones(64, 1)), r"has shape \(64, 1\), the config says \(64,\)"),
        ("GPT-2", with_("transformer.h.0.mlp.c_fc.weight", torch.ones(96, 64)), r"has shape \(96, 64\)"),
        ("Llama 2", with_("model.norm.weight", torch.ones(64, dtype=torch.int8)), r"holds int8"),
        ("Llama 2", with_("model.norm.weight", torch.full((64,), torch.nan)), r"model\.norm\.weight: holds values"),
        ("SmolLM2", copied("lm_head.weight", "model.embed_tokens.weight", 1.0), r"lm_head\.weight: differs from"),
        ("BERT", copied("cls.predictions.decoder.bias", "cls.predictions.bias", 1.0), r"decoder\.bias: differs from"),
        ("T5", copied("encoder.embed_tokens.weight", "shared.weight", 1.0), r"embed_tokens\.weight: differs from"),
    ],
)
def test_files_that_are_not_the_models(changed: Changed, name: str, change: Change, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        load(changed(name, change))


@pytest.mark.parametrize(
    ("name", "copy", "of"),
    [
        ("SmolLM2", "lm_head.weight", "model.embed_tokens.weight"),
        ("BERT", "cls.predictions.decoder.bias", "cls.predictions.bias"),
        ("BERT", "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ("MPNet", "lm_head.decoder.bias", "lm_head.bias"),
        ("T5", "lm_head.weight", "shared.weight"),
        ("T5", "decoder.embed_tokens.weight", "shared.weight"),
        ("Marian", "model.encoder.embed_tokens.weight", "model.shared.weight"),
    ],
)
def test_equal_copies_are_read(changed: Changed, name: str, copy: str, of: str) -> None:
    assert load(changed(name, copied(copy, of))).head is None


def test_old_names_of_norms(changed: Changed, saved: Callable[[str], Path]) -> None:
    def old(tensors: Tensors) -> None:
        for name in [name for name in tensors if ".LayerNorm." in name]:
            said = name.replace(".LayerNorm.weight", ".LayerNorm.gamma").replace(".LayerNorm.bias", ".LayerNorm.beta")
            tensors[said] = tensors.pop(name)

    found, want = load(changed("BERT", old)).state_dict(), load(saved("BERT")).state_dict()
    assert all(torch.equal(found[name], want[name]) for name in want)


@pytest.mark.parametrize(
    ("name", "keys", "says"),
    [
        ("Llama 2", {"hidden_act": "quick_gelu"}, r"hidden_act: no activation 'quick_gelu'"),
        ("Llama 2", {"hidden_size": 128, "head_dim": 16}, r"has shape .* the config says"),
        ("Llama 2", {"hidden_size": "64"}, r"hidden_size: '64' is not"),
        ("Llama 2", {"intermediate_size": -1}, r"intermediate_size: -1 is not"),
        ("Llama 2", {"rms_norm_eps": None}, r"rms_norm_eps: is missing"),
        ("Llama 2", {"num_key_value_heads": 3}, r"key_heads: .*does not divide"),
        ("Llama 2", {"num_hidden_layers": 9_999}, r"layers"),
        ("Llama 2", {"quantization_config": {"quant_method": "gptq"}}, r"quantization_config: .*GGUF"),
        ("Llama 2", {"attention_bias": True}, r"q_proj\.bias.*is missing"),
        ("OLMo 2", {"clip_qkv": 8.0}, r"clip_qkv: 8\.0 is not supported"),
        ("Gemma 3", {"use_bidirectional_attention": True}, r"use_bidirectional_attention: True is not supported"),
        ("Gemma 3", {"attn_logit_softcapping": 50.0}, r"attn_logit_softcapping: 50\.0 is not supported"),
        ("MPT", {"attn_config": {"alibi": True, "clip_qkv": 6}}, r"attn_config: clip_qkv: 6 is not supported"),
        ("MPT", {"attn_config": {"alibi": True, "qk_ln": True}}, r"attn_config: qk_ln: True is not supported"),
        ("MPT", {"logit_scale": "inv_sqrt_d_model"}, r"logit_scale: 'inv_sqrt_d_model' is not supported"),
        ("MPT", {"no_bias": False}, r"no_bias: False is not supported"),
        ("BLOOM", {"slow_but_exact": True}, r"slow_but_exact: True is not supported"),
        ("BLOOM", {"apply_residual_connection_post_layernorm": True}, r"post_layernorm: True is not supported"),
        ("GPT-2", {"scale_attn_by_inverse_layer_idx": True}, r"inverse_layer_idx: True is not supported"),
        ("GPT-2", {"add_cross_attention": True}, r"add_cross_attention: True is not supported"),
        ("BERT", {"is_decoder": True}, r"is_decoder: True lets an encoder attend to earlier tokens alone"),
        ("BERT", {"position_embedding_type": "relative_key"}, r"position_embedding_type: 'relative_key'"),
        ("T5", {"feed_forward_proj": "gated-quick_gelu"}, r"feed_forward_proj: no activation"),
        ("T5", {"dense_act_fn": "silu"}, r"dense_act_fn: is 'silu', and feed_forward_proj is 'relu'"),
        (
            "mT5",
            {"feed_forward_proj": "gated-silu"},
            r"dense_act_fn: is 'gelu_new', and feed_forward_proj is 'gated-silu",
        ),
        ("mT5", {"is_gated_act": False}, r"is_gated_act: False is not supported; models with True load"),
        ("T5", {"tie_word_embeddings": False}, r"scale_decoder_outputs: is True, and tie_word_embeddings is False"),
        ("T5", {"scale_decoder_outputs": None}, r"scale_decoder_outputs: None is not supported"),
        # transformers reads the common name too, and the last of the two: weights fit any number of heads.
        ("GPT-2", {"num_attention_heads": 2}, r"num_attention_heads: is 2, and n_head is 4"),
        ("BLOOM", {"num_attention_heads": 4}, r"num_attention_heads: is 4, and n_head is 8"),
        ("MPT", {"num_attention_heads": 4}, r"num_attention_heads: is 4, and n_heads is 8"),
        ("T5", {"num_attention_heads": 8, "head_dim": 8}, r"num_attention_heads: is 8, and num_heads is 4"),
        ("Marian", {"num_attention_heads": 2}, r"num_attention_heads: is 2, and encoder_attention_heads is 4"),
        ("Marian", {"decoder_attention_heads": None}, r"decoder_attention_heads: is missing"),
        ("Marian", {"decoder_attention_heads": 2}, r"decoder_attention_heads: 2 is not supported"),
        ("Marian", {"decoder_vocab_size": 198}, r"decoder_vocab_size: 198 is not supported"),
        ("Marian", {"share_encoder_decoder_embeddings": False}, r"share_encoder_decoder_embeddings: False"),
        ("Marian", {"normalize_before": True}, r"normalize_before: True is not supported"),
        ("MPNet", {"hidden_act": "relu"}, "hidden_act: 'relu' is not supported"),
        ("MPNet", {"relative_attention_num_buckets": 64}, "is 64, and transformers' code computes with 32"),
        ("MPNet", {"relative_attention_max_distance": 40}, "is 40, and transformers' code computes with 128"),
    ],
)
def test_keys_that_would_change_the_computation(changed: Changed, name: str, keys: dict[str, Any], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        load(changed(name, **keys))


def test_the_first_position_of_mpnet_is_row_2_whatever_pads(tmp_path: Path) -> None:
    """Its code has the 1 of padding written into it."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 90}
    config = transformers.MPNetConfig(**sizes, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0)
    theirs = transformers.MPNetForMaskedLM(config).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    theirs.save_pretrained(tmp_path)
    tokens = torch.randint(5, 99, (2, 70))
    with torch.no_grad():
        torch.testing.assert_close(load(tmp_path)(tokens), theirs(tokens).logits, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "own"), [("GPT-2", "n_head"), ("MPT", "n_heads"), ("T5", "num_heads")])
def test_heads_under_their_common_name(changed: Changed, name: str, own: str) -> None:
    path = changed(name)
    config = json.loads((path / "config.json").read_text())
    heads = config[own]
    (path / "config.json").write_text(json.dumps({**config, "num_attention_heads": heads}))
    assert load(path).config.heads == heads
    del config[own]
    (path / "config.json").write_text(json.dumps({**config, "num_attention_heads": heads}))
    assert load(path).config.heads == heads


def test_a_null_window_where_windows_are_on(changed: Changed) -> None:
    """As transformers writes a Qwen whose windows were off."""
    plan = load(changed("Qwen3", use_sliding_window=True, sliding_window=None, max_window_layers=28)).plan
    assert {layer.window for layer in plan.layers} == {None}


def test_a_null_soft_cap_is_none(changed: Changed) -> None:
    config = load(changed("Gemma 2", attn_logit_softcapping=None, final_logit_softcapping=None)).config
    assert (config.soft_cap, config.output_cap) == (None, None)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ("MixtralConfig", "mixture of experts"),
        ("Qwen2MoeConfig", "mixture of experts"),
        ("Qwen3MoeConfig", "mixture of experts"),
        ("OlmoeConfig", "mixture of experts"),
        ("GptOssConfig", "mixture of experts"),
        ("DeepseekV3Config", r"multi-head latent attention \(MLA\)"),
        ("DeepseekV2Config", r"multi-head latent attention \(MLA\)"),
        ("Qwen2VLConfig", "images|M-RoPE"),
        ("Qwen2_5_VLConfig", "images|M-RoPE"),
    ],
)
def test_architectures_that_are_inspected_and_not_loaded(tmp_path: Path, config: str, says: str) -> None:
    settings: dict[str, Any] = {"use_sliding_window": True} if config == "Qwen2MoeConfig" else {}
    if "VL" in config:
        rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]}
        settings = {"text_config": {"rope_parameters": rope}}
    getattr(transformers, config)(**settings).save_pretrained(tmp_path)
    with pytest.raises(BadInput, match=says) as refusal:
        load(tmp_path)
    assert refusal.value.field == "model_type"


def test_architectures_without_a_family(changed: Changed) -> None:
    with pytest.raises(BadInput, match=r"'granite' is not one that loads.*bert, bloom"):
        load(changed("Llama 2", model_type="granite"))


def test_an_unknown_dtype(changed: Changed) -> None:
    with pytest.raises(ValueError, match="no dtype 'int4'; there are float32"):
        load(changed("Llama 2"), dtype="int4")


def frequencies(base: float = 10_000.0, width: int = 16) -> Tensor:
    return base ** (-torch.arange(0, width, 2).double() / width)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_stored_frequencies_that_are_the_plans(changed: Changed, dtype: torch.dtype) -> None:
    def old(tensors: Tensors) -> None:
        for layer in range(2):
            tensors[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = frequencies().to(dtype)
        tensors["model.rotary_emb.inv_freq"] = frequencies().to(dtype)

    load(changed("Llama 2", old))


@pytest.mark.parametrize(
    ("name", "stored", "says"),
    [
        ("model.layers.1.self_attn.rotary_emb.inv_freq", frequencies(10_050.0), "other frequencies than the config"),
        ("model.rotary_emb.inv_freq", frequencies()[:4], "other frequencies than the config"),
        ("model.layers.7.self_attn.rotary_emb.inv_freq", frequencies(), "is of layer 7, and the config has 2"),
    ],
)
def test_stored_frequencies_that_are_not(changed: Changed, name: str, stored: Tensor, says: str) -> None:
    with pytest.raises(BadInput, match=says) as refusal:
        load(changed("Llama 2", with_(name, stored.float())))
    assert refusal.value.field == name


def test_stored_frequencies_where_nothing_rotates(changed: Changed) -> None:
    name = "transformer.h.0.attn.rotary_emb.inv_freq"
    with pytest.raises(BadInput, match="holds frequencies of a rotation, and no layer rotates"):
        load(changed("GPT-2", with_(name, frequencies().float())))


def test_linear_scaling_stored_the_plain_ladder(changed: Changed) -> None:
    rope = {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}
    model = load(changed("Llama 2", with_("model.rotary_emb.inv_freq", frequencies().float()), rope_parameters=rope))
    assert model.plan.layers[0].frequencies[0] == pytest.approx(0.25)


def sines(rows: int, width: int = 64) -> Tensor:
    angle = torch.arange(rows).double()[:, None] * frequencies(width=width)
    return torch.cat([angle.sin(), angle.cos()], dim=-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_stored_tables_of_sines(changed: Changed, dtype: torch.dtype) -> None:
    def old(tensors: Tensors) -> None:
        for side in ("encoder", "decoder"):
            tensors[f"model.{side}.embed_positions.weight"] = sines(4200).to(dtype)

    model = load(changed("Marian", old), dtype="float32")
    assert model.encoder is not None
    assert (model.encoder.kinds[0](positions.plain(9))[0] - sines(9)).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        (sines(100) * 1.01, "is not the table of sines"),
        (sines(100).roll(1, 0), "is not the table of sines"),
        (sines(100)[:, torch.arange(64).view(2, 32).t().flatten()], "is not the table of sines"),
        (sines(100)[:, :32], r"has shape \(100, 32\), and a table of positions has width 64"),
    ],
    ids=("scaled", "one late", "in pairs", "narrow"),
)
def test_stored_tables_that_are_not_sines(changed: Changed, stored: Tensor, says: str) -> None:
    name = "model.decoder.embed_positions.weight"
    with pytest.raises(BadInput, match=says) as refusal:
        load(changed("Marian", with_(name, stored.float().contiguous())))
    assert refusal.value.field == name


@pytest.mark.parametrize("name", ["Llama 2", "SmolLM3"])
def test_a_key_that_says_how_it_was_trained_changes_nothing(changed: Changed, name: str) -> None:
    path = changed(name, pretraining_tp=2)
    tokens = torch.randint(0, 50, (2, 40))
    with torch.no_grad():
        want = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)(tokens).logits
        assert (load(path)(tokens) - want).abs().max() <= 2e-5


def mixed(tensors: Tensors) -> None:
    """Matrices in float16 and the output map, with one value that float16 has no room for, in float32."""
    tensors.update({name: tensor.half() for name, tensor in tensors.items() if tensor.ndim == 2})
    tensors["lm_head.weight"] = tensors["lm_head.weight"].float()
    tensors["lm_head.weight"][3, 5] = 1e5


@pytest.mark.parametrize(
    ("kinds", "want"),
    [
        ((torch.float16, torch.float32), torch.float32),
        ((torch.bfloat16, torch.float16), torch.float32),
        ((torch.bfloat16, torch.float64), torch.float64),
        ((torch.bfloat16, torch.bfloat16), torch.bfloat16),
    ],
)
@pytest.mark.parametrize("first", [0, 1])
def test_several_dtypes_become_one_that_holds_them(
    changed: Changed, kinds: tuple[torch.dtype, ...], want: torch.dtype, first: int
) -> None:
    written: Tensors = {}

    def spread(tensors: Tensors) -> None:
        for number, name in enumerate(sorted(tensors)):
            written[name] = tensors[name] = tensors[name].to(kinds[(number + first) % 2])

    model = load(changed("Llama 2", spread))
    assert {parameter.dtype for parameter in model.parameters()} == {want}
    assert torch.equal(model.get_parameter("head.weight"), written["lm_head.weight"].to(want))
    norm = model.get_parameter("decoder.blocks.1.residual_mlp.before.weight")
    assert torch.equal(norm, written["model.layers.1.post_attention_layernorm.weight"].to(want))


def test_a_value_that_a_dtype_has_no_room_for(changed: Changed) -> None:
    path = changed("Llama 2", mixed)
    assert load(path).get_parameter("head.weight")[3, 5] == 1e5
    assert load(path, dtype="bfloat16").get_parameter("head.weight").isfinite().all()
    with pytest.raises(BadInput, match=r"lm_head\.weight: holds 100000, and float16 ends at 65504; give a wider"):
        load(path, dtype="float16")


def test_a_value_that_the_proof_of_an_export_has_no_room_for(changed: Changed) -> None:
    def huge(tensors: Tensors) -> None:
        tensors["lm_head.weight"] = tensors["lm_head.weight"].double()
        tensors["lm_head.weight"][0, 0] = 1e39

    opened = open_checkpoint(changed("Llama 2", huge))
    with pytest.raises(BadInput, match=r"lm_head\.weight: holds 1e\+39, and float32 ends at"):
        opened.parameter("head.weight")


def test_what_transformers_computes_otherwise_is_told(changed: Changed) -> None:
    """Its Llama turns whole heads whatever partial_rotary_factor says; `inspect` alone told of it."""
    rotation = {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}
    place = changed("Llama 2", rope_parameters=rotation)
    with pytest.warns(UserWarning, match=r"transformers 5 rotates all \d+ features .* ropewalk inspect") as told:
        ours = load(place)
    assert len(told) == 1
    theirs = transformers.AutoModelForCausalLM.from_pretrained(place).eval()
    tokens = torch.arange(40)[None] % 50
    with torch.no_grad():
        assert (ours(tokens) - theirs(tokens).logits).abs().max() > 0.01, "transformers reads it now: let the rule go"
    with pytest.warns(UserWarning, match="transformers 5 rotates all"):
        open_checkpoint(place)
