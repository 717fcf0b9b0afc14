"""Models that do not rotate: learned tables, T5's buckets, ALiBi, sinusoids."""

from __future__ import annotations

from dataclasses import replace

from ropewalk.checkpoints.architectures.architecture import Architecture
from ropewalk.checkpoints.architectures.in_engines import InGGUF

_LEARNED = Architecture(kind="learned", stack="encoder", head_key=None)
_ROBERTA = replace(_LEARNED, first_row="pad")
_GPT2 = Architecture(
    kind="learned",
    layer_key="n_layer",
    heads_key="n_head",
    width_key="n_embd",
    head_key=None,
    longest_key="n_positions",
)
_BART = Architecture(
    kind="learned",
    stack="encoder-decoder",
    layer_key="encoder_layers",
    heads_key="encoder_attention_heads",
    width_key="d_model",
    head_key=None,
    first_row=2,
    rows_beside=True,
    inert={"extra_pos_embeddings": "the rows before the first position are 2 in any case"},
    fixed={"static_position_embeddings": False},
)
_T5 = Architecture(
    kind="t5",
    stack="encoder-decoder",
    layer_key="num_layers",
    heads_key="num_heads",
    width_key="d_model",
    head_key="d_kv",
    longest_key="n_positions",
    defaults={"relative_attention_max_distance": 128, "relative_attention_num_buckets": 32},
)

ROWS = {
    "bart": _BART,
    "bert": replace(_LEARNED, family="bert", gguf=InGGUF()),
    "bloom": Architecture(
        kind="alibi",
        layer_key="n_layer",
        heads_key="n_head",
        head_key=None,
        longest_key="seq_length",
        inert={"offset_alibi": "a constant added to every key's score, which softmax takes out"},
        harmless=("n_embed",),
        family="bloom",
        gguf=InGGUF(),
    ),
    "camembert": _ROBERTA,
    "distilbert": replace(_LEARNED, layer_key="n_layers", heads_key="n_heads", width_key="dim"),
    "electra": _LEARNED,
    "gpt-sw3": _GPT2,
    "gpt2": replace(_GPT2, family="gpt2", gguf=InGGUF()),
    "gpt_bigcode": _GPT2,
    "marian": Architecture(
        kind="sinusoidal",
        stack="encoder-decoder",
        layer_key="encoder_layers",
        heads_key="encoder_attention_heads",
        width_key="d_model",
        head_key=None,
        fixed={"static_position_embeddings": True},
        inert={"extra_pos_embeddings": "of BART, whose config Marian grew from"},
        family="marian",
    ),
    "mbart": _BART,
    "mpnet": Architecture(
        kind="mpnet",
        stack="encoder",
        head_key=None,
        first_row=2,
        defaults={"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
        family="mpnet",
    ),
    "mpt": Architecture(
        kind="alibi",
        layer_key="n_layers",
        heads_key="n_heads",
        width_key="d_model",
        head_key=None,
        longest_key="max_seq_len",
        inert={"learned_pos_emb": "its code has no such table"},
        alibi_in="attn_config",
        family="mpt",
        gguf=InGGUF(),
    ),
    "mt5": replace(_T5, family="mt5"),
    "opt": replace(_LEARNED, stack="decoder", first_row=2, rows_beside=True),
    "roberta": _ROBERTA,
    "t5": replace(_T5, family="t5", gguf=InGGUF()),
    "umt5": replace(_T5, refusal="UMT5 has a bias table of its own in every layer"),
    "whisper": replace(
        _BART,
        layer_key="decoder_layers",
        heads_key="decoder_attention_heads",
        longest_key="max_target_positions",
        source_key="max_source_positions",
        first_row=0,
        rows_beside=False,
        inert={},
        fixed={},
    ),
    "xlm-roberta": _ROBERTA,
}
