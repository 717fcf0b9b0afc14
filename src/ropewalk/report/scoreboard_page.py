"""The page of the scoreboard: one HTML file, nothing fetched, no script, everything escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from pathlib import Path
from typing import Any

from ropewalk.report.scoreboard import cell

MARKS = {"passed": "&#10003;", "float32": "&#8776;", "failed": "&#10007;", "fixed": "&#9733;", "none": "&#8211;"}

LINKS = {"issue": "Reported", "introduced": "Introduced in"}
REPRODUCED = "Runs without ropewalk, and prints what is expected and what it got:"
DISPUTE = (
    "Every red cell names its cause; every cause has a script that needs only the library. If the script does not "
    "print what it says, if the library is not used as its documentation says, or if the expected value is not right, "
    "open an issue with the cell (library, version, requirement) and the line in question.",
    "A cell that is wrong is withdrawn, with the reason in the changelog; how the library is used is in "
    'src/ropewalk/conformance/adapters. See "Dispute a cell of the scoreboard" in CONTRIBUTING.md.',
)

STYLE = """
:root { --ink: #1b1f24; --soft: #59636e; --line: #d8dee4; --paper: #fff; --shade: #f6f8fa;
  --green: #116329; --greens: #dafbe1; --red: #a40e26; --reds: #ffebe9; --blue: #0550ae; --gold: #6a4a00;
  --golds: #fff8c5; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #0d1117;
  --shade: #151b23; --green: #56d364; --greens: #12261e; --red: #ff938a; --reds: #331418; --blue: #79c0ff;
  --gold: #e3b341; --golds: #272115; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 86rem; padding: 2.5rem 1.5rem 5rem; color: var(--ink); background: var(--paper);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", "Noto Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; letter-spacing: -.01em; }
h2 { font-size: 1.25rem; margin: 3rem 0 .6rem; }
p, ul { margin: .4rem 0; max-width: 48rem; } ul { padding-left: 1.2rem; margin-bottom: 1rem; } sup { line-height: 0; }
.soft, caption, small { color: var(--soft); }
a { color: var(--blue); text-decoration: none; } a:hover { text-decoration: underline; }
.wide { overflow-x: auto; margin: 1rem 0; border: 1px solid var(--line); border-radius: 6px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
th, td { padding: .32rem .55rem; border-bottom: 1px solid var(--line); text-align: center; white-space: nowrap; }
tr:last-child > * { border-bottom: 0; }
thead th { background: var(--shade); vertical-align: bottom; font-weight: 600; line-height: 1.3; white-space: normal;
  min-width: 5.4rem; } thead a { color: inherit; }
thead small { display: block; font-weight: 400; }
tbody th, thead th:first-child { text-align: left; font-weight: 400; position: sticky; left: 0; white-space: normal;
  min-width: 15rem; background: var(--shade); box-shadow: inset 0 -1px var(--line); }
tbody th b { display: inline-block; width: 2.7rem; font-weight: 600; font-variant-numeric: tabular-nums; }
td { font-variant-numeric: tabular-nums; }
@media (max-width: 46rem) { body { padding: 1.5rem 1rem 4rem; } tbody th { white-space: normal; min-width: 9.5rem; }
  tbody th b { display: block; } }
.passed { color: var(--green); background: var(--greens); } .fixed { color: var(--green); background: var(--greens); }
.failed { color: var(--red); background: var(--reds); } .failed a { color: inherit; font-weight: 600; }
.float32 { color: var(--gold); background: var(--golds); } .float32 a { color: inherit; }
.none { color: var(--soft); }
.key span { display: inline-block; padding: 0 .5rem; margin-right: .8rem; border-radius: 4px; }
details { border: 1px solid var(--line); border-radius: 6px; margin: .5rem 0; }
summary { cursor: pointer; padding: .5rem .8rem; } summary b { display: inline-block; width: 2.7rem; }
details[open] > summary { border-bottom: 1px solid var(--line); background: var(--shade); }
.case { padding: .6rem .8rem .8rem; border-bottom: 1px solid var(--line); } .case:last-child { border-bottom: 0; }
.case p { margin: .15rem 0; overflow-wrap: anywhere; max-width: none; }
pre, code { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: .4rem 0 0; padding: .55rem .7rem; background: var(--shade); border-radius: 5px; white-space: pre-wrap;
  overflow-wrap: anywhere; }
"""


def write(data: dict[str, Any], result: Path, shown: Path) -> None:
    """The data as JSON, and its page."""
    result.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    shown.write_text(page(data), encoding="utf-8")


def page(data: dict[str, Any]) -> str:
    """One HTML file."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    libraries, cells = data["libraries"], {}
    for entry in libraries:
        cells[entry["library"]] = {one["id"]: cell(entry, one["id"]) for one in data["requirements"]}
    body = [
        "<h1>Position code, library by library</h1>",
        f"<p class=soft>{_text(data['date'])} &#183; specification of {_text(data['spec'])} &#183; "
        f"torch {_text(data['torch'])} &#183; Python {_text(data['python'])} &#183; {_text(data['machine'])}</p>",
        "<p>Each library was used as its documentation says, as installed, and run through the same checks. "
        "A cell counts its targets: those that pass a requirement, or those that do not out of those it applies to. "
        "Most models are trained with angles that are float32 products, off by 2<sup>-24</sup> of themselves: "
        "what is past a bound and within that is a result of its own, and no failure.</p>",
        f"<p class=key><span class=passed>{MARKS['passed']} passed</span>"
        f"<span class=float32>{MARKS['float32']} within float32&#8217;s own error</span>"
        f"<span class=failed>{MARKS['failed']} failed</span>"
        f"<span class=fixed>{MARKS['fixed']} fixed: expected to fail, and passes</span>"
        f"<span class=none>{MARKS['none']} not applicable to any target</span></p>",
        _matrix(data, cells),
        *(_library(entry, data, cells[entry["library"]]) for entry in libraries),
        _rest(data),
    ]
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="referrer" content="no-referrer">',
            f"<title>Scoreboard, {_text(data['date'])}</title><style>{STYLE}</style></head><body>",
            *body,
            "</body></html>",
            "",
        ]
    )


def _matrix(data: dict[str, Any], cells: dict[str, Any]) -> str:
    heads = "".join(
        f'<th scope=col><a href="#{_anchor(entry["library"])}">{_text(entry["library"])}</a>'
        f"<small>{_text(entry['version'])}</small></th>"
        for entry in data["libraries"]
    )
    rows = []
    for one in data["requirements"]:
        shown = "".join(_cell(entry["library"], one["id"], cells[entry["library"]]) for entry in data["libraries"])
        rows.append(f"<tr><th scope=row><b>{_requirement(one)}</b>{_text(one['title'])}</th>{shown}</tr>")
    head = f"<thead><tr><th scope=col>requirement</th>{heads}</tr></thead>"
    return f"<div class=wide tabindex=0><table>{head}<tbody>{''.join(rows)}</tbody></table></div>"


def _cell(library: str, id: str, found: dict[str, Any]) -> str:
    one = found[id]
    state, mark = one["state"], MARKS[one["state"]]
    if state == "none":
        return f"<td class=none>{mark}</td>"
    if state in ("failed", "float32"):
        words = "failed" if state == "failed" else "is within float32's own error"
        label = f"{library}: {id} {words} in {len(one[state])} of {one['apply']} targets"
        text = f"{mark} {len(one[state])}/{one['apply']}"
        return f'<td class={state}><a href="#{_anchor(library, id)}" aria-label="{_text(label)}">{text}</a></td>'
    return f"<td class={state}>{mark} {one['apply']}</td>"


def _library(entry: dict[str, Any], data: dict[str, Any], found: dict[str, Any]) -> str:
    states = [one["state"] for one in found.values()]
    counted = (
        f"{sum(state != 'none' for state in states)} requirements apply, {states.count('failed')} failed, "
        f"{states.count('float32')} within float32's own error"
    )
    measured = f" &#183; measured {_text(entry['date'])}" if "date" in entry else ""
    again = (
        "ropewalk verify rope" if entry["library"] == "ropewalk" else f"ropewalk verify --library {entry['library']}"
    )
    parts = [
        f'<h2 id="{_anchor(entry["library"])}">{_text(entry["library"])} {_text(entry["version"])}</h2>',
        f"<p class=soft>{len(entry['targets'])} targets &#183; {_text(counted)} &#183; "
        f"{_text(entry['seconds'])} s of processor time{measured} &#183; <code>{_text(again)}</code></p>",
        *(_cause(entry["library"], cause) for cause in entry.get("causes", ())),
    ]
    for one in data["requirements"]:
        for target, _ in found[one["id"]]["fixed"]:
            parts.append(f"<p class=fixed>{MARKS['fixed']} {_text(one['id'])} {_text(target['says'])}: fixed</p>")
        shown = [*found[one["id"]]["failed"], *found[one["id"]]["float32"]]
        if shown:
            title = f"<b>{_text(one['id'])}</b>{_text(one['title'])} <small>{_named(shown)}</small>"
            cases = "".join(_case(entry["library"], target, result) for target, result in shown)
            # On what is inside: a browser opens what it is led to.
            inside = f'<div id="{_anchor(entry["library"], one["id"])}">{cases}</div>'
            parts.append(f"<details><summary>{title}</summary>{inside}</details>")
    if not {"failed", "float32"} & set(states):
        parts.append("<p>Nothing failed.</p>")
    return "\n".join(parts)


def _cause(library: str, cause: dict[str, Any]) -> str:
    """Why some cells are red: once, with all that it explains, and how to see it without ropewalk."""
    explained = [f"{one} ({', '.join(targets)})" for one, targets in cause["explains"].items()]
    links = [f"{word}: {_link(cause[key])}" for key, word in LINKS.items() if key in cause]
    body = [
        f"<p>Explains {_text('; '.join(explained))}.</p>",
        *(f"<p>{link}</p>" for link in links),
        f"<p class=soft>{_text(REPRODUCED)}</p><pre>{_text(cause['reproduction'].strip())}</pre>",
    ]
    anchor = _anchor(library, "cause", cause["id"])
    count = len(cause["explains"])
    title = f"{_text(cause['reason'])} <small>{count} requirement{'s' if count > 1 else ''}</small>"
    return f'<details><summary>{title}</summary><div class=case id="{anchor}">{"".join(body)}</div></details>'


def _named(failed: list[Any]) -> str:
    shorts = [target["short"] for target, _ in failed]
    return _text(", ".join(shorts[:6]) + (f" and {len(shorts) - 6} more" if len(shorts) > 6 else ""))


def _case(library: str, target: dict[str, Any], result: dict[str, Any]) -> str:
    single = result["status"] == "float32"
    state = f" <small class=float32>{MARKS['float32']} within float32&#8217;s own error</small>" if single else ""
    lines = [f"<p><b>{_text(target['says'])}</b> <small>{_text(target['short'])}</small>{state}</p>"]
    if "measured" in result:
        what = f"{result['what']}: " if "what" in result else ""
        unit = f" {result['unit']}" if "unit" in result else ""
        # What happens at lengths that are in use stands first.
        near = f"{_number(result['within'])}{unit} below 131,072; largest " if "within" in result else ""
        size = f"{_number(result['measured'])}{unit}" + (f" at {result['at']:,}" if "at" in result else "")
        bound = f" (bound {_number(result['bound'])})" if "bound" in result else ""
        where = f", past it from position {result['first_position']:,}" if "first_position" in result else ""
        lines.append(f"<p>{_text(what + near + size + bound + where)}</p>")
    lines += [f"<p class=soft>{_text(result['why'])}</p>"] if "why" in result else []
    if "cause" in result:
        anchor = _anchor(library, "cause", result["cause"])
        lines.append(f'<p><a href="#{anchor}">The cause, and how to reproduce it without ropewalk</a></p>')
    if "issue" in result:
        lines.append(f"<p>Upstream: {_link(result['issue'])}</p>")
    if "reproduction" in result:
        lines.append(f"<pre>{_text(result['reproduction'])}</pre>")
    return f"<div class=case>{''.join(lines)}</div>"


def _requirement(one: dict[str, Any]) -> str:
    """Its id, leading to its text, which stands beside this page."""
    page = one.get("page", "").removeprefix("docs/")
    return f'<a href="{escape(page)}">{_text(one["id"])}</a>' if page.startswith("en/") else _text(one["id"])


def _rest(data: dict[str, Any]) -> str:
    parts = ["<h2>Not run</h2>"]
    parts += [f"<p><b>{_text(name)}</b> {_text(why)}</p>" for name, why in data["not_run"].items()]
    parts += [] if data["not_run"] else ["<p>Every library that there is an adapter for was run.</p>"]
    parts += ["<h2>A cell is wrong?</h2>", *(f"<p>{_text(line)}</p>" for line in DISPUTE)]
    return "\n".join([*parts, "<h2>Again</h2>", f"<pre>{_text(data['command'])}</pre>"])


def _link(url: str) -> str:
    """Only to pages on the web: a result may come from anywhere."""
    if not url.startswith("https://"):
        return _text(url)
    return f'<a href="{escape(url)}" rel="noreferrer">{_text(url.removeprefix("https://github.com/"))}</a>'


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


def _anchor(*words: str) -> str:
    return escape("-".join(words).replace(" ", "-"))


def _text(value: Any) -> str:
    return escape(str(value))
