"""What is shown while eval computes: how far it is, and how long the rest takes."""

from __future__ import annotations

from ropewalk.cli.scaling import Left


def test_the_rest_is_counted_from_steps_that_were_computed() -> None:
    now, before = 0.0, 10
    left = Left(lambda: now)
    for done in range(11):  # found in the store
        now += 0.001
        assert left("tail loss", done, 100) == f"tail loss {done} of 100"
    for done, says in ((11, "30 minutes"), (50, "17 minutes"), (98, "40 s")):
        now += 20 * (done - before)
        before = done
        assert left("tail loss", done, 100) == f"tail loss {done} of 100, {says} left"
    now += 60
    assert left("needles", 0, 3) == "needles 0 of 3"
