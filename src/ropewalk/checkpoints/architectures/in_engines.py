"""What engines do with one architecture and not with others: facts of their code, fields of a row.

A field is named for what the engine does, and its default is what it does with most architectures. Each engine's file
in engines/ says which version was read. What scripts can read from an engine's sources, such as the names it knows, is
in engine_names.json instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ropewalk.plan import Layout


@dataclass(frozen=True, kw_only=True)
class InGGUF:
    """What llama.cpp's code says of a `general.architecture` and a GGUF file does not, where the row does not either.

    Read from llama.cpp of August 2026: llama_model_rope_type for the layout (NORM turns neighbours: pairs; NEOX turns i
    and i + n/2: half), and each architecture's load_arch_hparams for windows. The converter has permuted queries and
    keys of NORM architectures, so one checkpoint is `half` as a transformers directory and `pairs` as GGUF.
    """

    layout: Layout | None = None
    """None: the same as in transformers."""
    window: int | None = None
    """attention.sliding_window where the file does not say."""
    windows_off: bool = False
    """Whether llama.cpp switches the windows off that the file states; they are the model's all the same (Phi-3)."""
    with_windows: str | None = None
    """The model type of a file that has windows (OLMo 3 is converted under OLMo 2's name)."""
    log_multiplier_in_tenths: bool = False
    """Whether rope.scaling.yarn_log_multiplier is a tenth of mscale_all_dim, and mscale taken for the same (DeepSeek);
    else it is mscale_all_dim, and mscale taken for 1."""
    loads: bool = False
    """Whether its weights load from GGUF."""
    norms_plus_one: bool = False
    """Whether norms are stored with 1 added to their weights (Gemma)."""
    scale_by_width_at: int | None = None
    """Gemma's query_pre_attn_scalar is not in the file: llama.cpp takes the head width, and width over heads for the
    model of this number of layers, the largest of its generation."""
    always_biased: bool = False
    """Whether queries, keys and values have biases without a config key that says so (Qwen2)."""
    divisors: bool = False
    """Whether its graph reads divisors of frequencies from the file (rope_freqs, rope_factors_short and _long)."""
    to_config: tuple[str, ...] | None = None
    """Keys that its config.json states besides sizes, where one is made from GGUF; None: none is made."""
    scaling_in_transformers: bool = False
    """Whether transformers reads rope.scaling.* from such a file; of others it reads rope.freq_base alone."""


@dataclass(frozen=True, kw_only=True)
class InTransformers:
    """Both versions, unless a field names one."""

    sliding_theta_in_5: float | None = None
    """The base of sliding layers, unless rope_parameters has theirs: OLMo 3's config class takes rope_theta out of the
    keys for the full layers, and the sliding ones get the default."""
    theta_in_unread_in_5: float | None = None
    """The base that version 5 takes whatever the row's object (`theta_in`) says, unless rope_parameters has one."""
    rotary_key_unread_in_5: bool = False
    """Whether version 5 rotates the whole head unless rope_parameters has partial_rotary_factor."""
    scaling_unread_in_5: bool = False
    """Whether version 5's config class has rope_scaling for a field of its own, which is not merged into
    rope_parameters."""
    type_unread_in_5: bool = False
    """Whether version 5's config class puts rope_scaling into an object that says rope_type: default, which wins over
    `type`."""
    scaling_drops_part_in_5: bool = False
    """Whether version 5 loses the rotated part of a head where rope_scaling is given without it."""
    longrope_alone: bool = False
    """Whether its config class takes longrope and no other scaling."""
    restarts_cache: bool = False
    """Whether generate() starts the cache anew where LongRoPE's list changes."""
    never_long: bool = False
    """Whether LongRoPE's long list is never used: PhiMoE recomputes the frequencies without the length."""
    head_dim_null: tuple[int, ...] = ()
    """Versions whose config class leaves head_dim null, which three rope types multiply by."""
    reads_gguf_in_5: bool = False
    """Whether version 5 reads its GGUF files by a newer path (integrations/gguf), which takes rope.freq_base too."""
    no_scaling_in_4: bool = False
    """Whether version 4 reads no rope_scaling for it."""
    one_mask_in_4: bool = False
    """Whether version 4 makes one mask for all layers, with a window where any layer has one."""
    two_keys_in_4: bool = False
    """Whether version 4's config class takes rope_scaling in its oldest form alone: type and factor."""
    needs_rope_type_in_4: bool = False
    """Whether version 4 reads rope_scaling.rope_type without asking whether there is one."""
    llama3_alone_in_4: bool = False
    """Whether version 4 reads every rope_scaling as llama3."""
    longrope_in_three_keys_in_4: bool = False
    """Whether version 4 wants LongRoPE to be exactly type, short_factor and long_factor."""
    trained_in_4: int | None = None
    """original_max_position_embeddings of version 4's config class, where the config does not state it."""
    trained_within_in_4: bool = False
    """Whether version 4 finds original_max_position_embeddings within rope_scaling, too."""


@dataclass(frozen=True, kw_only=True)
class InVLLM:
    windows: Literal["unknown", "stated", "all or none", "one wider", "every other", "all"] = "unknown"
    """unknown: not read in its code. stated: as the checkpoint says. all or none: refused where only some layers have
    one. one wider: sliding_window + 1, which its Command R says is how the model was trained. every other: from the
    first, whatever layer_types says (gpt-oss). all: a window that some layers have is dropped (Qwen2-MoE)."""
    windows_unread_in_transformers: bool = False
    """Whether it is not known how windows are passed on where vLLM runs transformers' modelling code: ModernBERT's is
    half of what is stated and reaches both ways."""
    temperature: Literal["unknown", "stated", "dropped"] = "unknown"
    """dropped: its Mistral reads llama_4_scaling of Mistral's own params.json."""
    table_four_times: bool = False
    """Whether M-RoPE's table has four rows a position (mrope_positions_factor), and YaRN ramps by that length."""
    yarn_without_gain: bool = False
    """Whether its code passes YaRN's factor, lengths, betas and truncate on, and no gain (gpt-oss)."""
    length_as_stated: bool = False
    """Whether max_model_len is the stated length also beside a linear scaling: for others it is that times the
    factor."""


@dataclass(frozen=True, kw_only=True)
class InLlamaCpp:
    windows: Literal["unknown", "none", "off", "built in", "written", "first", "at one size"] = "unknown"
    """unknown: not read in its code. none: its graph has none. off: switched off by the loader. built in: every n-th
    layer is full, whatever layer_types says. written: the converter writes which layers slide. first: every n-th layer
    from the first is full. at one size: only with `layers` layers, and so are layers without rotation."""
    graph: str | None = None
    """The graph that has no windows, in words."""
    layers: int | None = None
    window: int | None = None
    """A window's width that is built in, whatever `window_key` says."""
    fourth_still: str | None = None
    """Every fourth layer does not rotate; this key of the config would say otherwise, and is not read."""
    temperature: Literal["unknown", "written", "dropped", "built in"] = "unknown"
    """written: by the converter. dropped: the converter does not write it. built in: Llama 4's, whatever is stated."""
    flags: Literal["all", "file", "base"] | None = None
    """What flags for RoPE do on layers with a window. all: its graph has one base and one scale. file: such layers
    keep the file's base and scale. base: they take the flag's base, and are never scaled. None: not known."""
    yarn_alone: bool = False
    """Whether its converter takes such a model only with YaRN."""
    reads_betas: bool = False
    """Whether the loader reads rope.scaling.yarn_beta_fast and _slow."""
    own_gain: bool = False
    """Whether the loader divides YaRN's gain by g(s, mscale_all_dim); MLA models' graph does too."""


@dataclass(frozen=True, kw_only=True)
class InMLX:
    takes: tuple[str, ...] | None = None
    """The scalings that its file takes, where it checks them; None: those of rope_utils.py."""
    drops_others: bool = False
    """Whether others are dropped with a warning, and not refused."""
    needs_type: bool = False
    """Whether the rope type must be written as `type`."""
    needs_scaling: bool = False
    """Whether its file fails without rope_scaling (DeepSeek V2 is always YaRN)."""
    needs_within: tuple[str, ...] = ()
    """Keys that its file takes out of rope_parameters and fails without."""
    new_base_alone: bool = False
    """Whether its file takes the base from rope_parameters, and not the scaling."""


@dataclass(frozen=True, kw_only=True)
class InSGLang:
    rotates_as_transformers: bool = False
    """Whether its class rotates by transformers' own functions (Gemma 3; with AMX, by a table of its own)."""
    one_wider: bool = False
    """Whether it passes sliding_window for the tokens before the query, so that a window has one more."""
    pattern_alone: bool = False
    """Whether windows and rotation go by sliding_window_pattern, a word of letters, and not by layer_types."""
    part_at_top: bool = False
    """Whether it reads partial_rotary_factor at the top of the config alone; transformers 5.22 writes it elsewhere."""
    needs: tuple[str, ...] = ()
    """Keys without which its own config class fails."""
