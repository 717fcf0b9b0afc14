"""What inspect says of transformers 5 and 4, for every way to write theta and a scaling, and for every architecture
with windows. Version 5 is asked itself; what 4.57.1 answered stands in transformers4.json (spellings.py wrote it)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ropewalk.checkpoints.engines import LayerReading, Reading
from tests.checkpoints.engine_configs import noted, read
from tests.checkpoints.engines.spellings import TABLE, TOKENS, brief, spellings, windowed

FOUR = json.loads(TABLE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def five() -> dict[str, Any]:
    pytest.importorskip("transformers")
    from campaigns.engine_runners import masks, rotations

    found = {
        "rotations": dict(zip(spellings(), rotations({"configs": list(spellings().values())}), strict=True)),
        "masks": dict(zip(windowed(), masks({"configs": list(windowed().values()), "tokens": TOKENS}), strict=True)),
    }
    return brief(found)


def check_rotations(engine: str, answers: dict[str, Any]) -> None:
    wrong = {}
    for name, config in spellings().items():
        reading = read(config)[engine]
        theirs = answers[name]
        if isinstance(theirs, str) or reading.refusal is not None:
            same = isinstance(theirs, str) and reading.refusal is not None
        else:
            same = all(
                numbers(layer) == pytest.approx(theirs[place], rel=3e-6)
                for place, layer in by_place(config, reading).items()
            )
        if not same:
            wrong[name] = (theirs, reading.refusal or [numbers(layer) for layer in reading.layers])
    assert wrong == {}


def by_place(config: dict[str, Any], reading: Reading) -> dict[str, LayerReading]:
    """transformers has one rotation where all layers turn alike."""
    kinds = config.get("layer_types", ["full_attention"])
    if len(reading.layers) == 1:
        return {"full": reading.layers[0]}
    return {kinds[layer.numbers[0]].partition("_")[0]: layer for layer in reading.layers}


def numbers(layer: LayerReading) -> list[float]:
    return [*(layer.frequencies[i] for i in (1, 4, 7)), layer.rotary_gain]


def test_transformers_5_reads_every_spelling_as_is_said(five: dict[str, Any]) -> None:
    check_rotations("transformers5", five["rotations"])


def test_transformers_4_reads_every_spelling_as_is_said() -> None:
    check_rotations("transformers4", FOUR["rotations"])


def test_the_spellings_of_which_transformers_4_loses_something_are_marked() -> None:
    """Where theta or the scaling stands only in rope_parameters; a block at the top that repeats it is enough."""
    for name, config in spellings().items():
        if config["model_type"] != "llama" or name.startswith(("default", "longrope")):
            continue
        at_the_top = "rope_theta" in config and config.get("rope_scaling") is not None
        plain = config.get("rope_scaling") is None and config.get("rope_parameters") is None
        assert noted(read(config)["transformers4"], "takes ") == (not at_the_top and not plain), name


@pytest.mark.parametrize("name", windowed())
@pytest.mark.parametrize("engine", ["transformers5", "transformers4"])
def test_windows_and_layers_without_rotation(five: dict[str, Any], engine: str, name: str) -> None:
    config = windowed()[name]
    answer = (five if engine == "transformers5" else FOUR)["masks"][name]
    reading = read(config)[engine]
    if isinstance(answer, str):
        assert reading.refusal is not None
        return
    assert reading.besides is not None
    assert reading.unknown == ()
    middle = TOKENS // 2
    for (behind, ahead, rotates), window, still in zip(
        answer, reading.besides.windows, reading.besides.still, strict=True
    ):
        assert rotates == (not still)
        if window is not None and name.startswith("llama4"):
            assert behind == middle % window  # its chunk
        else:
            assert behind == (middle if window is None else window - 1)
        assert ahead in (0, behind, behind - 1 if window is None else behind)


def test_transformers_4_has_one_mask_for_all_of_qwen2_moe() -> None:
    reading = read(windowed()["qwen2_moe"])
    assert noted(reading["transformers4"], "sees 6 tokens in every layer")
    assert not reading["transformers5"].disagrees


def test_the_converter_of_llama_cpp_passes_over_rope_scaling_beside_a_null() -> None:
    """As convert_hf_to_gguf.py did with these configs: freq_base as given or 10,000, and no rope.scaling keys."""
    for name, config in spellings().items():
        if not name.endswith("rope_scaling given, rope_parameters null"):
            continue
        (layer,) = read(config)["llama.cpp"].layers
        theta = config.get("rope_theta", 10_000.0)
        assert layer.frequencies == pytest.approx([theta ** (-2 * i / 16) for i in range(8)], rel=1e-12), name
        departs = "rope_theta" not in config or not name.startswith("default")
        assert noted(read(config)["llama.cpp"], "takes ") == departs, name


def test_transformers_5_gives_rope_theta_to_full_layers_of_olmo_3_alone(five: dict[str, Any]) -> None:
    """Published ones have its default, 500,000, in all layers."""
    config = spellings()["olmo 3, old"]
    assert five["rotations"]["olmo 3, old"]["sliding"][0] == pytest.approx(500_000 ** (-2 / 16), rel=1e-6)
    assert noted(read(config)["transformers5"], "theta 500,000 instead of 300,000")
    assert noted(read(config)["vllm"], "theta 500,000 instead of 300,000")
    assert not read({**config, "rope_theta": 500_000.0})["transformers5"].disagrees
    assert not read(config)["transformers4"].disagrees
    plain = {key: value for key, value in config.items() if key != "rope_scaling"}
    full = next(layer for layer in read(plain)["transformers5"].layers if layer.numbers == (3,))
    assert full.frequencies[1] == pytest.approx(300_000 ** (-2 / 16))
