"""Colours: read as text on both pages, and told apart by those who see two of three primary colours."""

from __future__ import annotations

from itertools import combinations

import pytest

from ropewalk.plot.palette import DASHES, Palette, mixed

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
SEEN_AS = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def linear(color: str) -> list[float]:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]


def luminance(color: str) -> float:
    red, green, blue = linear(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(color: str, sight: str) -> tuple[float, float, float]:
    rgb = [max(0.0, sum(w * c for w, c in zip(row, linear(color), strict=True))) for row in SEEN_AS[sight]]
    to_xyz = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    xyz = [sum(w * c for w, c in zip(row, rgb, strict=True)) for row in to_xyz]
    x, y, z = (
        (v / n) ** (1 / 3) if v / n > 0.008856 else 7.787 * v / n + 16 / 116
        for v, n in zip(xyz, (0.95047, 1, 1.08883), strict=True)
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def apart(one: str, other: str, sight: str) -> float:
    return sum((a - b) ** 2 for a, b in zip(lab(one, sight), lab(other, sight), strict=True)) ** 0.5


@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read(dark: bool) -> None:
    palette = Palette(dark)
    for name in [*palette.tones, "ink", "soft", "graded:0", "graded:0.25", "graded:0.5", "graded:0.75", "graded:1"]:
        assert contrast(palette.tone(name), palette.page("page")) >= 4.5, name
        assert contrast(palette.tone(name), palette.page("wash")) >= 4.0, name
    for name in ("blue", "orange", "green", "violet", "gold", "wash", "none"):
        assert contrast(palette.page("ink"), palette.fill(name)) >= 7, name


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("sight", SEEN_AS)
def test_the_first_tones_are_told_apart(dark: bool, sight: str) -> None:
    """10 is several times what is just noticed; tones that come closer differ in their dashes besides."""
    palette = Palette(dark)
    for one, other in combinations(("blue", "orange", "green"), 2):
        assert apart(palette.tone(one), palette.tone(other), sight) > 10, (one, other)


def test_every_series_has_dashes_of_its_own() -> None:
    assert len(set(DASHES)) == len(DASHES) == len(Palette().tones)


def test_a_scale_is_mixed_evenly() -> None:
    assert mixed(["#000000", "#ffffff"], 0.5) == "#808080"
    assert mixed(["#000000", "#ffffff", "#ff0000"], 1.0) == "#ff0000"
    assert mixed(["#000000", "#ffffff"], 7.0) == "#ffffff"
