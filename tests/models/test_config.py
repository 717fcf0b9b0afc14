"""The config of a Transformer: what is derived, what layers inherit, what is refused and in which words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ropewalk import encodings
from ropewalk.encodings import parse
from ropewalk.models import PRESETS, LayerPattern, TransformerConfig, preset
from ropewalk.overrides import problems

ROPE, ALIBI = parse("rope"), parse("alibi")
GEMMA = {
    "count": 8,
    "pattern": ["local", "local", "global"],
    "kinds": {"local": {"window": 512}, "global": {"encoding": {"kind": "rope", "base": 1e6}, "window": None}},
}


def said(**settings: Any) -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        TransformerConfig.model_validate(settings)
    return dict(problems(caught.value, TransformerConfig, "here", settings).problems)


class TestSizes:
    def test_defaults(self) -> None:
        config = TransformerConfig()
        assert (config.stack, config.encoding, config.window) == ("decoder", ROPE, None)
        assert (config.key_heads, config.head_width, config.value_width) == (8, 64, 64)

    def test_what_is_derived_follows_what_is_given(self) -> None:
        config = TransformerConfig(width=96, heads=6, key_heads=2)
        assert (config.key_heads, config.head_width, config.value_width) == (2, 16, 16)
        config = TransformerConfig(width=96, heads=5, head_width=32)
        assert (config.key_heads, config.head_width, config.value_width) == (5, 32, 32)

    def test_heads_must_share_the_width(self) -> None:
        assert said(heads=7) == {
            "heads": "7 heads do not share width 512 evenly; write heads: 4, or the width of one, head_width: 74"
        }
        assert "heads: 3" in said(width=3, heads=8)["heads"]
        assert TransformerConfig(heads=4, head_width=74).head_width == 74

    def test_key_heads_must_divide(self) -> None:
        assert said(key_heads=3) == {"key_heads": "3 does not divide heads 8; write 1, 2, 4 or 8"}

    def test_all_at_once(self) -> None:
        assert set(said(heads=7, key_heads=3, layers={"encoder": 1, "decoder": 1})) == {"heads", "key_heads", "layers"}
        assert set(said(width=0, heads=-1, stack="encodr", window=0, layers=0)) == {
            "width",
            "heads",
            "stack",
            "window",
            "layers",
        }

    def test_sizes_have_an_end(self) -> None:
        assert set(said(width=10**12, heads=10**9, layers=10**7)) == {"width", "heads", "layers"}

    def test_an_encoding_must_fit(self) -> None:
        odd = "rope: rotary_width=63 must be even and at most head_width=63; "
        odd += "write rotary_width: 62, or a head_width that is even"
        assert said(width=504) == {"encoding": odd}
        pattern = {"count": 2, "pattern": ["a"], "kinds": {"a": {"encoding": "rope"}}}
        assert said(width=504, encoding="alibi", layers=pattern) == {"layers": f"a, {odd}"}

    def test_a_huge_table_takes_no_memory(self) -> None:
        config = TransformerConfig(encoding={"kind": "learned", "longest": 10**9})
        assert config.plan().table == 10**9

    def test_frozen(self) -> None:
        with pytest.raises(ValidationError, match="frozen"):
            TransformerConfig().width = 3  # pyrefly: ignore


class TestEncoding:
    @pytest.mark.parametrize("kind", encodings.names())
    def test_every_kind_by_name(self, kind: str) -> None:
        needed = {"learned": {"longest": 16}, "temperature": {"trained": 16}, "chain": {"parts": ["rope", "alibi"]}}
        config = TransformerConfig(encoding={"kind": kind, **needed.get(kind, {})})
        assert config.encoding.kind == kind
        assert [layer.kind for layer in config.plan().layers] == [kind] * 8

    def test_an_unknown_kind(self) -> None:
        assert "Did you mean alibi?" in said(encoding="alibbi")["encoding"]

    def test_a_wrong_setting(self) -> None:
        assert said(encoding={"kind": "rope", "bse": 1, "layout": "hlf"}) == {
            "encoding.bse": "no such key. Did you mean encoding.base?",
            "encoding.layout": "should be half or pairs, got 'hlf'. Did you mean half?",
        }

    @pytest.mark.parametrize("encoding", ["xpos", "fire", "t5", {"kind": "chain", "parts": ["rope", "fire"]}], ids=str)
    @pytest.mark.parametrize("stack", ["encoder", "encoder-decoder"])
    def test_an_encoder_needs_one_that_looks_both_ways(self, encoding: Any, stack: str) -> None:
        problem = said(stack=stack, encoding=encoding)["encoding"]
        assert "defined for keys up to the query only" in problem
        assert ("write bidirectional: true" in problem) == (encoding == "t5")
        assert TransformerConfig(encoding=encoding).stack == "decoder"
        TransformerConfig(stack="encoder", encoding={"kind": "t5", "bidirectional": True})

    def test_shares_of_the_width_must_agree(self) -> None:
        beside = {"kind": "sinusoidal", "combine": "concat"}
        assert "cannot be the output map of width 512; write tie: false" in said(encoding=beside)["tie"]
        TransformerConfig(encoding=beside, output=False)
        windows = {"count": 4, "pattern": ["a", "b"], "kinds": {"a": {"window": 6}, "b": {}}}
        TransformerConfig(encoding=beside, layers=windows, tie=False)
        kinds = {"a": {"encoding": beside}, "b": {"encoding": {**beside, "share": 64}}}
        mixed = {"count": 2, "pattern": ["a", "b"], "kinds": kinds}
        assert said(layers=mixed, tie=False) == {
            "layers": "sinusoidal makes token vectors 512 wide, and sinusoidal takes 448; give both to every layer as "
            "one chain"
        }
        stacks = {"encoder": {"count": 2, "pattern": ["a"], "kinds": {"a": {"encoding": beside}}}, "decoder": 2}
        assert said(stack="encoder-decoder", layers=stacks, tie=False) == {
            "layers": "the encoder takes token vectors 256 wide and the decoder 512, from one table; give both stacks "
            "the same combine and share"
        }


class TestPresets:
    def test_changes_are_laid_over_what_is_there(self) -> None:
        norm = preset("bert", norm={"placement": "pre"}).norm
        assert (norm.kind, norm.eps, norm.placement) == ("layer", 1e-12, "pre")
        encoding = preset("llama", encoding={"kind": "rope", "scaling": {"kind": "linear", "factor": 4}}).encoding
        assert (encoding.base, encoding.scaling.factor) == (500_000, 4)
        assert preset("llama", encoding={"base": 7.0}).encoding == parse({"kind": "rope", "base": 7.0})
        assert preset("llama", encoding="alibi").encoding == ALIBI
        assert preset("llama", encoding=ROPE).encoding == ROPE
        dropout = preset("gpt2", dropout={"attention": 0.0}).dropout
        assert (dropout.embedding, dropout.attention, dropout.residual) == (0.1, 0.0, 0.1)

    @pytest.mark.parametrize("name", PRESETS)
    def test_a_number_of_layers_is_that_of_each_stack(self, name: str) -> None:
        config = preset(name, layers=2)
        assert [len(config.layer_kinds(side)) for side in config.sides] == [2] * len(config.sides)
        for side in config.sides:
            assert config.layer_kinds(side)[0] == preset(name).layer_kinds(side)[0]


class TestLayers:
    def test_a_number(self) -> None:
        config = TransformerConfig(layers=3, window=7, encoding="alibi")
        assert config.layer_kinds() == ((None, ALIBI, 7, 0),) * 3

    def test_a_pattern_is_tiled_and_cut(self) -> None:
        config = TransformerConfig(layers=GEMMA)
        kinds = config.layer_kinds()
        assert [layer.kind for layer in kinds] == ["local", "local", "global"] * 2 + ["local"] * 2
        assert [layer.window for layer in kinds] == [512, 512, None] * 2 + [512] * 2
        far = parse({"kind": "rope", "base": 1e6})
        assert [layer.encoding for layer in kinds] == [ROPE, ROPE, far] * 2 + [ROPE] * 2

    def test_null_means_none(self) -> None:
        layers = {"count": 3, "pattern": ["a", "b"], "kinds": {"a": {"encoding": None}, "b": {}}}
        config = TransformerConfig(encoding="alibi", layers=layers)
        assert [layer.encoding.kind for layer in config.layer_kinds()] == ["none", "alibi", "none"]
        assert TransformerConfig.model_validate(config.model_dump(mode="json")) == config
        assert TransformerConfig(encoding=None).encoding.kind == "none"

    def test_a_kind_has_the_models_window_unless_it_says_so(self) -> None:
        pattern = {
            "count": 3,
            "pattern": ["a", "b", "c"],
            "kinds": {"a": {}, "b": {"window": None}, "c": {"window": 4}},
        }
        config = TransformerConfig(layers=pattern, window=9, encoding="alibi")
        assert config.layer_kinds() == (("a", ALIBI, 9, 0), ("b", ALIBI, None, 0), ("c", ALIBI, 4, 0))

    def test_a_pattern_longer_than_the_layers(self) -> None:
        assert [layer.kind for layer in TransformerConfig(layers={**GEMMA, "count": 2}).layer_kinds()] == ["local"] * 2

    def test_a_count_alone_is_a_number(self) -> None:
        assert TransformerConfig(layers={"count": 3}).layer_kinds() == TransformerConfig(layers=3).layer_kinds()

    def test_two_stacks(self) -> None:
        config = TransformerConfig(stack="encoder-decoder", layers={"encoder": 2, "decoder": GEMMA}, encoding="alibi")
        assert config.sides == ("encoder", "decoder")
        assert config.layer_kinds("encoder") == ((None, ALIBI, None, 0),) * 2
        assert [layer.encoding.kind for layer in config.layer_kinds("decoder")][:3] == ["alibi", "alibi", "rope"]

    def test_a_number_is_for_both_stacks(self) -> None:
        config = TransformerConfig(stack="encoder-decoder", layers=3)
        assert len(config.layer_kinds("encoder")) == len(config.layer_kinds("decoder")) == 3

    def test_which_stack_must_be_said_where_there_are_two(self) -> None:
        with pytest.raises(
            ValueError, match="stack=None names no stack of encoder-decoder; write 'encoder' or 'decoder'"
        ):
            TransformerConfig(stack="encoder-decoder").layer_kinds()
        with pytest.raises(ValueError, match="stack='encoder' names no stack of decoder; write 'decoder'"):
            TransformerConfig().layer_kinds("encoder")

    @pytest.mark.parametrize(
        ("layers", "want"),
        [
            (
                {"count": 2, "pattern": ["a", "b"], "kinds": {"a": {}}},
                {
                    "layers.pattern": "names b, which kinds does not describe; "
                    "write for example kinds: {b: {window: 512}}"
                },
            ),
            (
                {"count": 2, "pattern": ["a"], "kinds": {"a": {}, "b": {}}},
                {"layers.kinds": "describes b, which no layer is; write pattern: [a, b]"},
            ),
            (
                {"pattern": ["a"], "kinds": {"a": {}}},
                {"layers.count": "missing (How many layers); write layers.count=..."},
            ),
            (
                {"encoder": 2, "decoder": 2},
                {
                    "layers": "has encoder and decoder layers, the stack is decoder; "
                    "write stack: encoder-decoder, or a number for layers"
                },
            ),
            ("many", {"layers": "should be a valid integer, got 'many'"}),
            (
                {"count": 1, "pattern": ["a"], "kinds": {"a": {"windw": 3}}},
                {"layers.kinds.a.windw": "no such key. Did you mean layers.kinds.a.window?"},
            ),
        ],
    )
    def test_what_is_refused(self, layers: Any, want: dict[str, str]) -> None:
        assert said(layers=layers) == want


class TestPlan:
    def test_one_entry_a_layer(self) -> None:
        plan = TransformerConfig(layers=GEMMA).plan()
        assert [layer.window for layer in plan.layers] == [512, 512, None] * 2 + [512] * 2
        assert [layer.base for layer in plan.layers] == [1e4, 1e4, 1e6] * 2 + [1e4] * 2
        assert plan.fingerprint

    def test_sizes_reach_the_encoding(self) -> None:
        plan = TransformerConfig(width=96, heads=6, layers=1).plan()
        assert plan.layers[0].rotary_width == 16

    def test_each_stack_has_its_own(self) -> None:
        config = TransformerConfig(stack="encoder-decoder", layers={"encoder": 2, "decoder": 3})
        assert (len(config.plan("encoder").layers), len(config.plan("decoder").layers)) == (2, 3)


encoding_settings = st.one_of(
    st.sampled_from(["alibi", "none", "sinusoidal", {"kind": "t5", "bidirectional": True}]),
    st.builds(lambda base: {"kind": "rope", "base": base}, st.floats(2, 1e9)),
    st.builds(lambda factor: {"kind": "rope", "scaling": {"kind": "linear", "factor": factor}}, st.integers(1, 64)),
    st.just({"kind": "chain", "parts": ["rope", {"kind": "temperature", "trained": 64}]}),
)
windows = st.none() | st.integers(1, 9999)
layer_kinds = st.fixed_dictionaries({}, optional={"encoding": encoding_settings, "window": windows})
patterns = st.builds(
    lambda kinds, count: {"count": count, "pattern": [*kinds, *kinds][:-1] or [*kinds], "kinds": kinds},
    st.dictionaries(st.sampled_from(["local", "global", "none"]), layer_kinds, min_size=1),
    st.integers(1, 12),
)


@given(encoding_settings, windows, st.integers(1, 12) | patterns, st.sampled_from(["encoder", "decoder"]))
def test_what_a_config_prints_reads_back_as_the_same(encoding: Any, window: Any, layers: Any, stack: Any) -> None:
    config = TransformerConfig(stack=stack, width=64, heads=4, encoding=encoding, window=window, layers=layers)
    again = TransformerConfig.model_validate(json.loads(config.model_dump_json()))
    assert again == config
    assert again.layer_kinds() == config.layer_kinds()


def test_a_resolved_pattern_leaves_nothing_open() -> None:
    layers = TransformerConfig(layers=GEMMA, window=9).layers
    assert isinstance(layers, LayerPattern)
    assert all(kind.encoding is not None for kind in layers.kinds.values())


def test_schema_has_every_kind_and_no_loose_reference() -> None:
    schema = TransformerConfig.model_json_schema()
    text = json.dumps(schema)
    assert [kind for kind in encodings.names() if f'"const": "{kind}"' not in text] == []

    def references(node: Any) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(references, node))
        if not isinstance(node, dict):
            return set()
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*map(references, node.values()))

    assert references(schema) <= {f"#/$defs/{name}" for name in schema["$defs"]}
