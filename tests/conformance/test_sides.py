"""Wrong implementations that hide behind a right function of the same target, and right ones that are unlike ours."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from ropewalk.conformance.run import verify
from tests.conformance.targets import SMALL, YARN, Kept, Twisted, ours, small

LINEAR = ("scaling.kind=linear", "scaling.factor=8")


def both(query: Callable[..., Tensor], key: Callable[..., Tensor], base: Any) -> Twisted:
    return Twisted(base, without=("rotate",), rotate_query=query, rotate_key=key)


def last_head_as_it_was(built: Any, x: Tensor, at: Tensor) -> Tensor:
    turned = small().rotate(built, x, at)
    return torch.cat([turned[:, :-1], x[:, -1:]], 1)


def alone_within_a_table(built: Any, x: Tensor, at: Tensor) -> Tensor:
    return small().rotate(built, x, at.clamp(max=2_047) if at.shape[1] == 1 else at)


def batches_in_half(built: Any, x: Tensor, at: Tensor) -> Tensor:
    return small().rotate(built, x, at.half().long() if len(at) > 1 else at)


def with_table(base: Any, rotate: Callable[..., Tensor]) -> Twisted:
    """Its cos and sin are right, and `rotate` does not take them."""

    def cos_sin(built: Any, at: Tensor) -> tuple[Tensor, Tensor]:
        x = torch.zeros(len(at), 2, at.shape[1], 16)
        x[..., :8] = 1
        turned = base.rotate(built, x, at)[:, 0]
        return turned[..., :8], turned[..., 8:]

    return Twisted(base, rotate=rotate, cos_sin=cos_sin)


def upside_down(built: Any, q_at: Tensor, k_at: Tensor) -> Tensor:
    turned = copy.deepcopy(built)
    turned.weight.data.copy_(built.weight.data.flip(0))
    return small("t5").bias(turned, q_at, k_at)


def attended(
    scale: float, times: float, built: Any, q: Tensor, k: Tensor, v: Tensor, q_at: Tensor, k_at: Tensor
) -> Tensor:
    bias = small("t5").bias(built, q_at[0], k_at[0])
    scores = scale * q @ k.transpose(-1, -2) + times * bias
    return scores.masked_fill(k_at[0] > q_at[0, :, None], -torch.inf).softmax(-1) @ v


def counts_itself(built: Any, ids: Tensor, positions: Any = None, cache: Any = None) -> Any:
    return small().forward(built, ids, None, cache)


def loud(built: Any, at: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = small("sinusoidal").cos_sin(built, at)
    return 3 * cos, 3 * sin


def within_a_table(built: Any, at: Tensor) -> tuple[Tensor, Tensor]:
    return Kept().cos_sin(built, at.clamp(max=4_095))


WRONG: dict[str, tuple[str, Callable[[], Any]]] = {
    "a scaling that rotate does not have": (
        "N07",
        lambda: with_table(small("rope", *LINEAR), lambda built, x, at: small().rotate(small().build(), x, at)),
    ),
    "a gain that rotate does not have": (
        "N08",
        lambda: with_table(
            small("rope", *YARN), lambda built, x, at: small("rope", *YARN).rotate(built, x, at) / 1.13862944
        ),
    ),
    "keys one further": (
        "N01",
        lambda: both(small().rotate, lambda built, x, at: small().rotate(built, x, at + 1), small()),
    ),
    "one head": ("C22", lambda: Twisted(small(), without=("attend", "forward"), rotate=last_head_as_it_was)),
    "a token alone": ("N01", lambda: Twisted(small(), without=("attend", "forward"), rotate=alone_within_a_table)),
    "a batch": ("C10", lambda: Twisted(small(), without=("attend", "forward"), rotate=batches_in_half)),
    "buckets upside down": ("C25", lambda: Twisted(small("t5"), bias=upside_down)),
    "a bias divided with the scores": (
        "C25",
        lambda: Twisted(small("t5"), attend=partial(attended, 0.25, 0.25)),
    ),
    "a bias left out of attention": ("C25", lambda: Twisted(small("t5"), attend=partial(attended, 1.0, 0.0))),
    "a model that counts": (
        "C14",
        lambda: Twisted(small(), without=("rotate", "cos_sin", "attend", "frequencies"), forward=counts_itself),
    ),
    "sinusoids that are too large": ("N08", lambda: Twisted(small("sinusoidal"), cos_sin=loud)),
}


@pytest.mark.parametrize("case", WRONG)
def test_it_is_seen(case: str) -> None:
    broken, made = WRONG[case]
    assert verify(made(), only=broken)[broken].status == "failed"


def test_a_table_that_is_clamped_is_called_that() -> None:
    report = verify(Twisted(Kept(), cos_sin=within_a_table), only="N01,N07")
    assert report["N07"].status == "passed"
    assert report["N01"].status == "failed"
    assert (report["N01"].first_position or 0) > 4_095
    assert "rounded" not in str(report["N01"].why)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_scores_of_t5_are_divided_or_not(scale: float) -> None:
    assert verify(Twisted(small("t5"), attend=partial(attended, scale, 1.0)), only="C25")["C25"].status == "passed"


def test_a_table_of_zeros_is_not_taken_for_positions_that_are_ignored() -> None:
    def build(**given: Any) -> Any:
        built = small("t5").build(**given)
        torch.nn.init.zeros_(built.encoding.weight)
        return built

    report = verify(Twisted(small("t5"), build=build), only="C14")
    assert report["C14"].status == "not applicable"
    assert "random weights" in report["C14"].why


def in_place(built: Any, x: Tensor, at: Tensor) -> Tensor:
    with torch.no_grad():
        turned = small().rotate(built, x.detach(), at)
    return x.copy_(turned) if not x.requires_grad else small().rotate(built, x, at)


@pytest.mark.parametrize("id", ["N01", "N03", "N10", "C10", "C21"])
def test_rotating_in_place_is_right(id: str) -> None:
    target = Twisted(small(), without=("attend", "forward", "cos_sin"), rotate=in_place)
    assert verify(target, only=id)[id].status in ("passed", "not applicable")


def test_plain_frequencies_of_another_order_of_operations() -> None:
    def frequencies(config: Any) -> Any:
        found = torch.exp(-torch.arange(0, 16, 2).float() / 16 * torch.tensor(float(config["rope_theta"])).log())
        return found / config["factor"] if config.get("rope_type") == "linear" else found

    assert verify(Twisted(Kept(), frequencies=frequencies), only="C07")["C07"].status == "passed"


def test_a_small_table_of_buckets() -> None:
    target = ours.target("t5", *SMALL, "buckets=8", "farthest=20")
    assert verify(target, only="N10")["N10"].status == "passed"


def test_slopes_that_are_wrong_are_not_blamed_on_the_end() -> None:
    base = ours.target("alibi", "heads=12", "head_width=16")

    def bias(built: Any, q_at: Tensor, k_at: Tensor) -> Tensor:
        slopes = torch.tensor([2.0 ** (-8 * head / 12) for head in range(1, 13)])
        return -slopes[:, None, None] * (q_at[:, None] - k_at[None]).float()

    report = verify(Twisted(base, without=("attend", "forward"), bias=bias), only="C23,C27")
    assert report["C23"].status == "failed"
    assert report["C27"].status in ("passed", "not applicable")
