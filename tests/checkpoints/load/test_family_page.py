"""families.md in both languages, of the same rows."""

from __future__ import annotations

import re

from tests.checkpoints import family_page


def test_both_pages_are_of_the_same_rows() -> None:
    english = family_page.FILES["en"].read_text(encoding="utf-8")
    facts = {
        "version": re.findall(r"transformers ([\d.]+\d)", english)[0],
        "lengths": (1, 7, 63, 128),
        "far": 4000,
    }
    rows = family_page.rows()
    assert len(rows) > 20
    for language, file in family_page.FILES.items():
        assert family_page.page(rows, language, **facts) == file.read_text(encoding="utf-8")
