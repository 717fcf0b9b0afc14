"""The page of the scoreboard: one HTML file, nothing fetched, no script, everything escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from pathlib import Path
from typing import Any

from ropewalk.report.scoreboard import cell

MARKS = {"passed": "&#10003;", "failed": "&#10007;", "fixed": "&#9733;", "none": "&#8211;"}

STYLE = """
:root { --ink: #1b1f24; --soft: #59636e; --line: #d8dee4; --paper: #fff; --shade: #f6f8fa;
  --green: #116329; --greens: #dafbe1; --red: #a40e26; --reds: #ffebe9; --blue: #0550ae; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #0d1117;
  --shade: #151b23; --green: #56d364; --greens: #12261e; --red: #ff938a; --reds: #331418; --blue: #79c0ff; } }
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
  min-width: 6.2rem; } thead a { color: inherit; }
thead small { display: block; font-weight: 400; }
tbody th, thead th:first-child { text-align: left; font-weight: 400; position: sticky; left: 0;
  background: var(--shade); }
tbody th b { display: inline-block; width: 2.7rem; font-weight: 600; font-variant-numeric: tabular-nums; }
td { font-variant-numeric: tabular-nums; }
@media (max-width: 46rem) { body { padding: 1.5rem 1rem 4rem; } tbody th { white-space: normal; min-width: 9.5rem; }
  tbody th b { display: block; } }
.passed { color: var(--green); background: var(--greens); } .fixed { color: var(--green); background: var(--greens); }
.failed { color: var(--red); background: var(--reds); } .failed a { color: inherit; font-weight: 600; }
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
        "<p>Each library was asked through its public interface, as installed, and run through the same checks. "
        "A cell counts its targets: those that pass a requirement, or those that fail it out of those it applies to. "
        "The bounds are strict (1e-6 rad at every position to 2<sup>40</sup>): a failed cell says from which position "
        "on, and by how much.</p>",
        f"<p class=key><span class=passed>{MARKS['passed']} passed</span>"
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
        rows.append(f"<tr><th scope=row><b>{_text(one['id'])}</b>{_text(one['title'])}</th>{shown}</tr>")
    head = f"<thead><tr><th scope=col>requirement</th>{heads}</tr></thead>"
    return f"<div class=wide tabindex=0><table>{head}<tbody>{''.join(rows)}</tbody></table></div>"


def _cell(library: str, id: str, found: dict[str, Any]) -> str:
    one = found[id]
    state, mark = one["state"], MARKS[one["state"]]
    if state == "none":
        return f"<td class=none>{mark}</td>"
    if state == "failed":
        label = f"{library}: {id} failed in {len(one['failed'])} of {one['apply']} targets"
        text = f"{mark} {len(one['failed'])}/{one['apply']}"
        return f'<td class=failed><a href="#{_anchor(library, id)}" aria-label="{_text(label)}">{text}</a></td>'
    return f"<td class={state}>{mark} {one['apply']}</td>"


def _library(entry: dict[str, Any], data: dict[str, Any], found: dict[str, Any]) -> str:
    states = [one["state"] for one in found.values()]
    counted = f"{sum(state != 'none' for state in states)} requirements apply, {states.count('failed')} failed"
    parts = [
        f'<h2 id="{_anchor(entry["library"])}">{_text(entry["library"])} {_text(entry["version"])}</h2>',
        f"<p class=soft>{len(entry['targets'])} targets &#183; {counted} &#183; "
        f"{_text(entry['seconds'])} s of processor time</p>",
        _reasons(found),
    ]
    for one in data["requirements"]:
        for target, _ in found[one["id"]]["fixed"]:
            parts.append(f"<p class=fixed>{MARKS['fixed']} {_text(one['id'])} {_text(target['says'])}: fixed</p>")
        failed = found[one["id"]]["failed"]
        if failed:
            title = f"<b>{_text(one['id'])}</b>{_text(one['title'])} <small>{_named(failed)}</small>"
            cases = "".join(_case(target, result) for target, result in failed)
            anchor = _anchor(entry["library"], one["id"])
            parts.append(f'<details id="{anchor}"><summary>{title}</summary>{cases}</details>')
    if "failed" not in states:
        parts.append("<p>Nothing failed.</p>")
    return "\n".join(parts)


def _named(failed: list[Any]) -> str:
    shorts = [target["short"] for target, _ in failed]
    return _text(", ".join(shorts[:6]) + (f" and {len(shorts) - 6} more" if len(shorts) > 6 else ""))


def _case(target: dict[str, Any], result: dict[str, Any]) -> str:
    lines = [f"<p><b>{_text(target['says'])}</b> <small>{_text(target['short'])}</small></p>"]
    if "measured" in result:
        what = f"{result['what']}: " if "what" in result else ""
        size = f"{_number(result['measured'])} {result.get('unit', '')}".strip()
        bound = f" (bound {_number(result['bound'])})" if "bound" in result else ""
        where = f", from position {result['first_position']:,}" if "first_position" in result else ""
        lines.append(f"<p>{_text(what + size + bound + where)}</p>")
    lines += [f"<p class=soft>{_text(result[key])}</p>" for key in ("why", "reason") if key in result]
    if "issue" in result:
        lines.append(f"<p>Upstream: {_link(result['issue'])}</p>")
    if "reproduction" in result:
        lines.append(f"<pre>{_text(result['reproduction'])}</pre>")
    return f"<div class=case>{''.join(lines)}</div>"


def _reasons(found: dict[str, Any]) -> str:
    """What is behind the red cells, each once: the reasons known, and where each shows."""
    known: dict[tuple[str, str], list[str]] = {}
    for _, result in (pair for one in found.values() for pair in one["failed"]):
        if "reason" in result:
            ids = known.setdefault((result["reason"], result.get("issue", "")), [])
            ids += [] if result["id"] in ids else [result["id"]]
    if not known:
        return ""
    rows = [
        f"<li>{_text(reason)} <small>{_text(', '.join(ids))}</small>{' ' + _link(issue) if issue else ''}</li>"
        for (reason, issue), ids in known.items()
    ]
    return f"<ul>{''.join(rows)}</ul>"


def _rest(data: dict[str, Any]) -> str:
    parts = ["<h2>Not run</h2>"]
    parts += [f"<p><b>{_text(name)}</b> {_text(why)}</p>" for name, why in data["not_run"].items()]
    parts += [] if data["not_run"] else ["<p>Every library that there is an adapter for was run.</p>"]
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
