"""What is known of an architecture: one row, `Architecture`, that everything about checkpoints reads.

The fields say what stands in the code of transformers 5.22.2 and not in a checkpoint's config; `gguf`, `transformers`,
`vllm` and `llama_cpp` say the same of GGUF files and of the engines. A checkpoint of an architecture that has no row is
refused, since layout, width and pattern of its layers would be guesses. The rows are in rows/, by lineage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ropewalk.checkpoints.architectures.in_engines import InGGUF, InLlamaCpp, InMLX, InSGLang, InTransformers, InVLLM
from ropewalk.plan import Layout

Stack = Literal["decoder", "encoder", "encoder-decoder"]
PositionKind = Literal["rope", "learned", "alibi", "t5", "sinusoidal", "mpnet"]
Pattern = Literal[
    "full",  # every layer sees everything
    "window",  # sliding_window, if given, is every layer's
    "each",  # the same, unless layer_types says otherwise
    "listed",  # full, unless layer_types says otherwise
    "every",  # sliding, except every n-th layer
    "late",  # Qwen2: full up to max_window_layers, then sliding, if use_sliding_window
    "odd",  # Qwen2-MoE: every other of the first max_window_layers slides, if use_sliding_window
    "used",  # Qwen3-MoE: sliding_window is every layer's, if use_sliding_window
    "still",  # SmolLM3: layers without rotation slide, if use_sliding_window
    "first",  # ModernBERT: every n-th layer from the first is full, the rest sees both ways
    "chunked",  # Llama 4: layers with rotation see their chunk
    "indexed",  # full, of keys that an indexer has chosen, unless layer_types says otherwise
    "sparse",  # full, of keys that an indexer has chosen where layer_types or the marks say so
    "linear",  # layers of linear attention or convolution between full ones, as layer_types says
    "crossing",  # Mllama: full, except cross_attention_layers, which attend to an image
    "recurrent",  # no attention: every layer is a state-space one
    "compressed",  # DeepSeek V4: sliding, or a window and before it one key for several tokens, as layer_types says
]
Rotates = Literal["all", "listed", "sliding", "none"]
"""Which layers rotate: all, those `no_rope_layers` marks with 1, the sliding ones, or none."""


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """The row of a `model_type`. The defaults are Llama's."""

    # What it is, and the keys of its config.
    kind: PositionKind = "rope"
    stack: Stack = "decoder"
    layout: Layout = "half"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """What transformers takes for keys that published checkpoints leave out."""
    implied: Mapping[str, Any] = field(default_factory=dict)
    """What it takes besides where this is the text part of another config: there transformers writes no defaults."""
    layer_key: str = "num_hidden_layers"
    heads_key: str = "num_attention_heads"
    width_key: str = "hidden_size"
    head_key: str | None = "head_dim"
    """Features of a head; where the key is absent, `defaults` or width / heads. None: always width / heads."""
    longest_key: str = "max_position_embeddings"
    source_key: str | None = None
    """The encoder's length, where that is not the decoder's (Whisper)."""
    elsewhere: tuple[str, ...] = ()
    """Keys within rope_parameters that are read beside the scaling."""
    inert: Mapping[str, str] = field(default_factory=dict)
    """Position-like keys that published configs have and this architecture's code does not read, and why."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Keys that published configs have and the code does not read, with the only value that its code agrees with."""
    harmless: tuple[str, ...] = ()
    """Other keys that published configs have, which are not about positions and in no class of transformers."""
    code: str | None = None
    """Whose code the facts are from, where it is not transformers'."""
    class_name: str | None = None
    """The class its checkpoints name in `architectures`, where transformers has no code for it."""
    first_spelling: Architecture | None = None
    """The row of configs in which the number of layers has another name: those of its first releases."""
    before: tuple[int, int] | None = None
    """The transformers version that first knew `theta_key`; configs written before it fix the default."""

    # Rotation.
    theta_key: str | None = "rope_theta"
    """None: the base is fixed in the architecture's code, and stands in `defaults` as rope_theta."""
    theta_in: str | None = None
    """An object of the config that has the base (DBRX)."""
    local_theta_key: str | None = None
    """The base of sliding layers, where they have one of their own."""
    bases_key: str | None = None
    """A list of bases, one for each layer; 0: the layer does not rotate."""
    bases_mark: bool = False
    """Whether that list only says which layers rotate, and the base of all of them is the common one (Muse)."""
    fractions_key: str | None = None
    """A list of rotated parts, one for each layer. The base may then be such a list too, alike within a layer type, and
    a scaling is the full layers' alone (Step 3.5)."""
    rope_labels: Mapping[str, str] = field(default_factory=dict)
    """Names of the objects in rope_parameters, where they are not layer types, and the layer types they are for."""
    scales_local: bool = True
    """Whether an unnested scaling is the sliding layers' too."""
    fraction_key: str | None = "partial_rotary_factor"
    rotary_key: str | None = None
    """Rotated features as a number (`rotary_dim`)."""
    rotates_last: bool = False
    """Whether the rotated features are the last of a head; MLA's always are."""
    turns_values: bool = False
    """Whether values are the rotated keys, and outputs are rotated back by the position of the query (DeepSeek V4)."""
    latent: bool = False
    """Multi-head latent attention: a slice of qk_rope_head_dim features rotates after qk_nope_head_dim still ones."""
    gain_on_scores: bool = False
    """Whether YaRN's second gain multiplies the scores."""
    yarn_gain: float | None = None
    """YaRN's gain where attention_factor does not say; None: YaRN's own."""
    sections: Literal["blocks", "interleaved"] | None = None
    """How M-RoPE arranges its axes; None: one axis."""
    axes: tuple[int, int, int] = (0, 0, 0)
    """Frequencies of M-RoPE's three axes where `mrope_section` does not say."""
    temperature: Literal["llama4", "ministral"] | None = None
    alpha_is_ntk: bool = False
    """Whether rope type dynamic with an alpha is a base that is fixed: NTK by the factor alpha (Hunyuan)."""
    yarn_is_longrope: bool = False
    """Whether rope type yarn with a short_factor is read as longrope: Phi-3's first spelling."""
    states_gains: bool = False
    """Whether LongRoPE's gain is short_mscale and long_mscale, and nothing else is read for it (PhiMoE)."""
    states_extended: bool = False
    """Whether the stated length beside a linear scaling is the extended one. Google states that for Gemma 3; the
    trained one, 32k by its report, is in no config."""

    # Layers.
    pattern: Pattern = "full"
    every: int = 0
    """n of the patterns that have one."""
    every_key: str | None = None
    offset: int | None = None
    """The first full layer of such a pattern; below 0, counted from the last layer. None: the n-th."""
    offset_key: str | None = None
    first_full: bool = False
    """Whether the first layer is full besides, where layer_types does not say (MiMo V2)."""
    prefix_key: str | None = None
    """n of the dense layers before the first experts, where they have one of their own; with 1, all of them are full
    and rotate (Command A+)."""
    types_key: str = "layer_types"
    marks_key: str | None = None
    """Another spelling of layer_types: one mark for each layer, in a list or a text; with a dot, within an object."""
    marks: Mapping[int | str, str] = field(default_factory=dict)
    """The layer type of each mark."""
    numbers_in: str | None = None
    """An object that lists the numbers of full (full_attn_layers) and linear layers (kda_layers), from 1 (Kimi)."""
    blocks_key: str | None = None
    """A list of objects, one for each layer, whose `attention` says whether the layer has any (Nemotron NAS)."""
    lettered: bool = False
    """Whether `every_key` may be a pattern of letters, LLLG: EXAONE's first spelling."""
    window_key: str = "sliding_window"
    past_window_key: str | None = None
    """A key that has the window without the query itself, and is read before `window_key` (MiMo V2)."""
    last_full: bool = False
    """Whether the last layer is full whatever layer_types states (Gemma 4)."""
    rotates: Rotates = "all"
    rotates_without_windows: bool = True
    """Where only sliding layers rotate: whether a model without windows rotates everywhere (EXAONE 4), or nowhere
    (Command R7B)."""
    needs_window: bool = False
    """Whether its layers slide and rotate by their type alone, also without a width: what that sees is not read."""
    both_ways_key: str | None = None
    """A key that makes a decoder see both ways, with half the stated window on each side: for sentence vectors."""
    indexer: Layout | None = None
    """How the indexer of such layers rotates: features of its heads, by the frequencies of the layer. None: it does
    not."""
    indexer_last: bool = False
    """Whether those features are the last of its heads, not the first."""
    index_key: str = "index_head_dim"
    """Features of its heads; where this is null, there is no indexer."""
    index_block_key: str | None = None
    """Tokens that share one of its keys: their mean, rotated at the position of the first."""
    rotates_if: tuple[str, str] | None = None
    """A key, and the only value with which any layer rotates (Granite 4 hybrids)."""
    experts: bool | str = False
    """Whether layers are mixtures of experts, or the key that says so."""

    # Positions that do not rotate.
    first_row: int | Literal["pad"] = 0
    """Of a learned table: the row of position 0; pad: the row after the padding token's."""
    rows_beside: bool = False
    """Whether those first rows come on top of `max_position_embeddings`."""
    filled_in: str | None = None
    """What transformers' config class puts in place of rope_parameters that are missing; a config without them is
    refused."""
    alibi_key: str | None = None
    """A key that puts ALiBi in place of RoPE where it is true (Falcon)."""
    alibi_in: str | None = None
    """The object of the config that says whether there is ALiBi (MPT)."""

    # Loading and exporting.
    family: str | None = None
    """The file in families/ that loads it; None: it is inspected and not loaded."""
    refusal: str | None = None
    """Why it is not loaded, where that is neither experts, MLA, M-RoPE nor the pattern."""
    one_rotation: bool = False
    """Whether its positions are one rotation of whole heads, as Llama's: exported in the keys of versions 4 and 5."""
    written_as_gguf: bool = False

    # Elsewhere.
    only_transformers: bool = False
    """Whether its positions are spelled in ways of its own, and no other engine's code for them was read: none of those
    is compared."""
    compared: tuple[str, ...] = ()
    """Of such a row, engines whose own classes were asked all the same, and are compared."""
    gguf_name: str | None = None
    """GGUF's general.architecture, where conversion/*.py of llama.cpp gives it another name than the model type."""
    gguf: InGGUF | None = None
    """Its files in GGUF; None: a file of that name is not read, or is read as another model type that shares it."""
    transformers: InTransformers = field(default_factory=InTransformers)
    vllm: InVLLM = field(default_factory=InVLLM)
    llama_cpp: InLlamaCpp = field(default_factory=InLlamaCpp)
    mlx: InMLX = field(default_factory=InMLX)
    sglang: InSGLang = field(default_factory=InSGLang)

    @property
    def rotates_by_type(self) -> bool:
        """Whether its code has a rotation for each layer type; others take rope_parameters for one object."""
        usual = self.defaults.get("rope_parameters") or {}
        by_keys = self.local_theta_key is not None or self.fractions_key is not None
        return by_keys or not self.scales_local or "full_attention" in usual

    @property
    def gguf_layout(self) -> Layout:
        return self.layout if self.gguf is None or self.gguf.layout is None else self.gguf.layout


@dataclass(frozen=True, kw_only=True)
class SeveralParts:
    """The row of a model that reads images or sounds besides: its positions are those of its text part."""

    text: str
    """What its `text_config` is where that does not say."""
    renamed: tuple[str, ...] = ()
    """Names that text part had in first releases."""
    keys_at_top: bool = False
    """Whether its config class takes the text part's keys from the top, too."""
