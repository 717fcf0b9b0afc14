"""The page of the scoreboard: what fails first, each cause once, then the matrix and every measurement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ropewalk.report.markup import Content, Html, anchor, element, html, link
from ropewalk.report.page import page as whole_page
from ropewalk.report.parts import Shown, fold, table, verdict
from ropewalk.report.scoreboard import cell
from ropewalk.report.words import Words

STATES = {"failed": ("\u2717", "bad"), "float32": ("\u2248", "fair"), "passed": ("\u2713", "good"),
          "fixed": ("\u2605", "good"), "none": ("\u2013", "none")}  # fmt: skip
"""The sign and the look of each; a column sorts in this order."""

STYLE = "@media (min-width:40rem){.stacks tbody th{min-width:17rem}}"

words = Words("scoreboard")


def write(data: dict[str, Any], result: Path, shown: Path) -> None:
    """The data as JSON, and its page."""
    result.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    shown.write_text(page(data), encoding="utf-8")


def page(data: dict[str, Any]) -> str:
    """One HTML file."""
    cells = {
        entry["library"]: {one["id"]: cell(entry, one["id"]) for one in data["requirements"]}
        for entry in data["libraries"]
    }
    failing = [entry for entry in data["libraries"] if _red(entry, cells)]
    body: list[Content] = [
        element("h1", words("title")),
        element("p", words("about")),
        _verdict(data, failing, cells),
        element(
            "p",
            words("state", **{key: data[key] for key in ("date", "spec", "torch", "python", "machine")}),
            class_="soft",
        ),
        element("h2", words("fails"), id="fails") if failing else None,
        [_library(entry, data, cells[entry["library"]]) for entry in failing],
        element("h2", words("matrix"), id="all"),
        element("p", words("matrix_about")),
        element("p", words("float32_told")),
        _key(),
        _matrix(data, cells),
        element("h2", words("measured"), id="measured"),
        [_measured(entry, data, cells[entry["library"]]) for entry in data["libraries"]],
        _rest(data),
    ]
    return whole_page(words("page"), body, style=STYLE, wide=True)


def _red(entry: dict[str, Any], cells: dict[str, Any]) -> bool:
    return any(found["state"] == "failed" for found in cells[entry["library"]].values())


def _verdict(data: dict[str, Any], failing: list[dict[str, Any]], cells: dict[str, Any]) -> Html:
    clean = [entry["library"] for entry in data["libraries"] if entry not in failing]
    causes = sum(len(entry.get("causes", ())) for entry in failing)
    unexplained = sum(result["status"] == "failed" for entry in failing for each in cells[entry["library"]].values()
                      for _, result in each["failed"])  # fmt: skip
    if not failing:
        return verdict(words("verdict_none"), good=True)
    more = [words("verdict_unexplained", count=unexplained)] if unexplained else []
    if clean:
        names = {"en": ", ".join(clean), "zh": "\u3001".join(clean)}
        more.append(words("verdict_clean", names=names))
    said = words("verdict", causes=causes, libraries=len(failing), all=len(data["libraries"]))
    return verdict(said, *more, good=False)


def _library(entry: dict[str, Any], data: dict[str, Any], found: dict[str, Any]) -> Html:
    """A library that fails something, in the words its maintainers need."""
    name = entry["library"]
    bare = [
        _failed(name, one, found[one["id"]])
        for one in data["requirements"]
        if any("cause" not in result for _, result in found[one["id"]]["failed"])
    ]
    return html(
        [
            element("h3", f"{name} {entry['version']}", id=anchor(name)),
            element("p", words("again_library"), " ", element("code", _command(name)), class_="soft"),
            [_cause(name, cause, data) for cause in entry.get("causes", ())],
            bare,
        ]
    )


def _command(library: str) -> str:
    return "ropewalk verify rope" if library == "ropewalk" else f"ropewalk verify --library {library}"


def _cause(library: str, cause: dict[str, Any], data: dict[str, Any]) -> Html:
    """Once, with what to change, all that it explains, and how to see it without ropewalk."""
    known = words.table("causes").get(library, {}).get(cause["id"], {})
    reason = {"en": cause["reason"], **({"zh": known["reason"]} if known else {})}
    titles = {one["id"]: one for one in data["requirements"]}
    explained = [
        element(
            "li", _requirement(titles.get(name, {"id": name, "title": ""})), " ", element("small", ", ".join(targets))
        )
        for name, targets in cause["explains"].items()
    ]
    told = [element("p", words(word), " ", link(cause[key])) for key, word in LINKS.items() if key in cause]
    change = {key: known[key] for key in ("en", "zh")} if known else None
    return element(
        "section",
        element("h4", reason),
        element("p", element("strong", words("change")), " ", change) if change else None,
        told or element("p", words("not_reported"), class_="soft"),
        element("p", words("explains"), class_="soft"),
        element("ul", explained),
        fold(words("script"), element("pre", cause["reproduction"].strip())),
        id=anchor(library, "cause", cause["id"]),
        class_="cause",
    )


LINKS = {"issue": "reported", "introduced": "introduced"}


def _failed(library: str, one: dict[str, Any], found: dict[str, Any]) -> Html:
    """A failure whose cause is not on the list."""
    cases = [_case(library, target, result) for target, result in found["failed"] if "cause" not in result]
    return fold([element("strong", one["id"]), " ", _title(one)], cases, opened=True)


def _matrix(data: dict[str, Any], cells: dict[str, Any]) -> Html:
    order = list(STATES)
    rows = []
    for one in data["requirements"]:
        row: list[Shown | Content] = [Shown(said=_requirement(one), value=one["id"])]
        for entry in data["libraries"]:
            found = cells[entry["library"]][one["id"]]
            sign, look = STATES[found["state"]]
            row.append(
                Shown(
                    said=_count(entry["library"], one["id"], found, sign), look=look, value=order.index(found["state"])
                )
            )
        rows.append(row)
    heads: list[Content] = [
        words("requirement"),
        *(f"{entry['library']} {entry['version']}" for entry in data["libraries"]),
    ]
    return table(heads, rows, label=words("matrix"), stacks=True)


def _count(library: str, id: str, found: dict[str, Any], sign: str) -> Content:
    state = found["state"]
    if state == "none":
        return [sign, element("span", words("none"), class_="aside")]
    if state in ("failed", "float32"):
        said = [
            f"{sign} {len(found[state])}/{found['apply']}",
            element("span", f" {library} {id} ", words(state), class_="aside"),
        ]
        return element("a", said, href=f"#{anchor(library, id)}")
    return [f"{sign} {found['apply']}", element("span", " ", words(state), class_="aside")]


def _key() -> Html:
    items = [
        element("li", element("span", f"{sign} ", words(state), class_=f"badge {look}"))
        for state, (sign, look) in STATES.items()
    ]
    return element("ul", items, class_="key")


def _measured(entry: dict[str, Any], data: dict[str, Any], found: dict[str, Any]) -> Html:
    """Everything about a library that did not simply pass."""
    name, states = entry["library"], [one["state"] for one in found.values()]
    counted = words(
        "counted", targets=len(entry["targets"]), apply=sum(state != "none" for state in states),
        failed=states.count("failed"), float32=states.count("float32"),
    )  # fmt: skip
    date = [" \u00b7 ", words("measured_on", date=entry["date"])] if "date" in entry else []
    parts: list[Content] = [element("h3", f"{name} {entry['version']}"), element("p", counted, date, class_="soft")]
    for one in data["requirements"]:
        each = found[one["id"]]
        parts += [
            element("p", STATES["fixed"][0], " ", words("is_fixed", id=one["id"], target=target["says"]))
            for target, _ in each["fixed"]
        ]
        shown = [*each["failed"], *each["float32"]]
        if shown:
            sign, look = STATES["failed" if each["failed"] else "float32"]
            title = [
                element("span", sign, class_=f"badge {look}"),
                " ",
                element("strong", one["id"]),
                " ",
                _title(one),
                " ",
                element("small", _named(shown)),
            ]
            parts.append(
                fold(title, [_case(name, target, result) for target, result in shown], id=anchor(name, one["id"]))
            )
    if not {"failed", "float32"} & set(states):
        parts.append(element("p", words("library_clean")))
    return html(parts)


def _named(shown: list[Any]) -> str:
    shorts = [target["short"] for target, _ in shown]
    return ", ".join(shorts[:6]) + (f" +{len(shorts) - 6}" if len(shorts) > 6 else "")


def _case(library: str, target: dict[str, Any], result: dict[str, Any]) -> Html:
    single = result["status"] == "float32"
    badge = element("span", STATES["float32"][0], " ", words("float32"), class_="badge fair") if single else ""
    lines: list[Content] = [
        element("p", element("strong", target["says"]), " ", element("small", target["short"]), " ", badge)
    ]
    if "measured" in result:
        unit = f" {result['unit']}" if "unit" in result else ""
        # What happens at lengths that are in use stands first.
        within = words("below", size=f"{_number(result['within'])}{unit}") if "within" in result else ""
        lines.append(
            element(
                "p",
                f"{result['what']}: " if "what" in result else "",
                within,
                f"{_number(result['measured'])}{unit}",
                words("at", at=f"{result['at']:,}") if "at" in result else "",
                words("bound", bound=_number(result["bound"])) if "bound" in result else "",
                words("past", first=f"{result['first_position']:,}") if "first_position" in result else "",
            )
        )
    if "why" in result:
        lines.append(element("p", result["why"], class_="soft"))
    if "cause" in result:
        lines.append(element("p", link(f"#{anchor(library, 'cause', result['cause'])}", words("cause_link"))))
    if "issue" in result:
        lines.append(element("p", words("upstream"), " ", link(result["issue"])))
    if "reproduction" in result:
        lines.append(element("pre", result["reproduction"]))
    return element("div", lines)


def _title(one: dict[str, Any]) -> Content:
    from ropewalk.conformance.spec import requirements  # its package needs torch, and the other pages do not

    chinese = requirements("zh").get(one["id"])
    return {"en": one["title"], "zh": chinese.title} if chinese else one["title"]


def _requirement(one: dict[str, Any]) -> Html:
    """Its id, leading to its text, which stands beside this page, and its title."""
    page = one.get("page", "").removeprefix("docs/")
    name = element("a", one["id"], href=page) if page.startswith("en/") else element("strong", one["id"])
    return html([name, " ", _title(one)])


def _rest(data: dict[str, Any]) -> Html:
    not_run = [element("p", element("strong", name), " ", why) for name, why in data["not_run"].items()]
    return html(
        [
            [element("h2", words("not_run")), not_run] if not_run else None,
            element("h2", words("dispute")),
            element("p", words("dispute_1")),
            element("p", words("dispute_2")),
            element("h2", words("again")),
            element("pre", data["command"]),
        ]
    )


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)
