"""The README's first picture, from the result of `studies/extrapolation.yaml` and from nothing else.

python -m campaigns.study_picture            docs/pictures/extrapolation.svg and extrapolation.zh.svg
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from campaigns import pieces
from ropewalk.plot.chart import Chart
from ropewalk.plot.drawing import svg
from ropewalk.report.comparison.charts import protocol, task
from ropewalk.report.words import Words

STUDY = pieces.REPOSITORY / "studies" / "extrapolation" / "study.json"
PICTURES = {
    language: pieces.REPOSITORY / "docs" / "pictures" / name
    for language, name in (("en", "extrapolation.svg"), ("zh", "extrapolation.zh.svg"))
}
TASKS = ("copy", "sort")
"""Those that are learned within the trained length."""
words = Words("compare")


def main() -> None:
    found = json.loads(STUDY.read_text(encoding="utf-8"))
    for language, path in PICTURES.items():
        path.write_text(svg(chart(found, language)), encoding="utf-8")


def chart(found: Mapping[str, Any], language: str) -> Chart:
    text, longest = found["text"], found["tasks"]["longest"]
    about = words("picture_about", trained=text["trained"], tail=text["tail"], longest=longest)[language]
    # A third of a picture has room for fewer ticks.
    (panel,) = protocol(found, "same", language).panels
    across = replace(panel.x, ticks=panel.x.ticks[::2], label=words("picture_across")[language])
    panels = [replace(panel, title=words("part_text")[language], x=across, share=1.5)]
    for name in TASKS:
        (panel,) = task(found, name, language).panels
        across = replace(panel.x, ticks=[tick for tick in panel.x.ticks if tick[0] % 10 == 0])
        panels.append(replace(panel, title=words(name)[language], x=across))
    return Chart(title=words("picture_title")[language], about=about, panels=panels, columns=len(panels), height=4.2)


if __name__ == "__main__":
    main()
