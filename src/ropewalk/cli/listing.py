"""`ropewalk list`: what there is to choose from, read off the code itself."""

from __future__ import annotations

import importlib
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli import recipes
from ropewalk.cli.help import Commands
from ropewalk.cli.output import Json, Quiet, examples, guarded, write, write_json, write_table

if TYPE_CHECKING:
    from ropewalk.encodings import Encoding

ITS_PARTS = "its parts"
"""Said of an encoding made of others, where the answer is theirs."""

USUAL = {"keeps_norm": "changes norm", "bidirectional": "causal only", "pointwise": "not pointwise"}
"""Claims most encodings make, and what is said of one that does not."""

app = Commands(
    help="List the available encodings, scalings, architectures and recipes.",
    epilog=examples("ropewalk list encodings", "ropewalk list scalings --json"),
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(
    epilog=examples(
        "ropewalk list encodings",
        "ropewalk list encodings --json",
        "ropewalk list encodings my_pkg.cable    # with one of your own, the module my_pkg/cable.py",
    )
)
@guarded
def encodings(
    kinds: Annotated[
        list[str] | None, typer.Argument(metavar="MODULE", help="Also list these encodings from outside ropewalk.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List position encodings and what each claims.

    Sites: embed changes token vectors, rotate changes queries and keys, bias is added to scores.
    Claims hold with the default settings. "its parts" means that it depends on the encodings it is made of.
    """
    from ropewalk.encodings import find, names

    found = [_encoding(find(kind)) for kind in [*names(), *(kinds or [])]]
    if json:
        write_json(found)
    elif quiet:
        write("\n".join(entry["kind"] for entry in found))
    else:
        rows = [
            (
                entry["kind"],
                entry["class"],
                _words(entry["sites"]),
                {True: "yes", False: "no", None: ITS_PARTS}[entry["learned"]],
                _words(entry["arxiv"]),
                _claims(entry["claims"]),
                entry["about"],
            )
            for entry in found
        ]
        write_table(("kind", "class", "sites", "learned", "arXiv", "claims", "about"), rows)


@app.command(epilog=examples("ropewalk list scalings", "ropewalk list scalings --json"))
@guarded
def scalings(json: Json = False, quiet: Quiet = False) -> None:
    """List the scalings of RoPE's frequencies.

    rope_type is the name in transformers, which has none for ntk: it is written as a larger rope_theta.
    """
    from ropewalk.scaling import find, names

    found: list[dict[str, Any]] = []
    for kind in names():
        cls = find(kind)
        about, arxiv = _about(cls.__module__)
        found.append({"kind": kind, "class": cls.__name__, "rope_type": cls.hf_type, "arxiv": arxiv, "about": about})
    if json:
        write_json(found)
    elif quiet:
        write("\n".join(entry["kind"] for entry in found))
    else:
        rows = [(e["kind"], e["class"], e["rope_type"] or "-", _words(e["arxiv"]), e["about"]) for e in found]
        write_table(("kind", "class", "rope_type", "arXiv", "about"), rows)


@app.command(epilog=examples("ropewalk list architectures", "ropewalk list architectures --json"))
@guarded
def architectures(json: Json = False, quiet: Quiet = False) -> None:
    """List the architectures whose checkpoints can be inspected, by their model_type.

    A model with several parts is read by its text part, whatever its other parts are, if the text part is listed here.
    """
    from ropewalk.checkpoints.architectures.table import PARTS, find, names

    found: list[dict[str, Any]] = []
    for name in names():
        known = find(PARTS.get(name, name))
        assert known is not None
        layout = known.layout if known.kind == "rope" else None
        found.append(
            {
                "model_type": name,
                "positions": known.kind,
                "layout": layout,
                "stack": known.stack,
                "text": PARTS.get(name),
            }
        )
    if json:
        write_json(found)
    elif quiet:
        write("\n".join(entry["model_type"] for entry in found))
    else:
        rows = [(e["model_type"], e["positions"], e["layout"] or "-", e["stack"], e["text"] or "-") for e in found]
        write_table(("model_type", "positions", "layout", "stack", "text part"), rows)


@app.command(name="recipes", epilog=examples("ropewalk list recipes", "ropewalk list recipes --quiet"))
@guarded
def recipes_(json: Json = False, quiet: Quiet = False) -> None:
    """List the recipes that come with ropewalk; `train`, `estimate` and `config` take their names.

    The first comment in each says how to prepare its data. `ropewalk init recipe` writes one to start from.
    """
    if quiet:
        write("\n".join(recipes.names()))
        return
    found: list[dict[str, Any]] = []
    for name in recipes.names():
        about, commands = recipes.about(name)
        found.append({"name": name, "about": about, "commands": commands, "path": recipes.located(name)})
    if json:
        write_json(found)
    else:
        write_table(("recipe", "about"), [(entry["name"], entry["about"]) for entry in found])


def _words(values: list[str] | None) -> str:
    return ITS_PARTS if values is None else ", ".join(values) or "-"


def _encoding(cls: type[Encoding]) -> dict[str, Any]:
    from ropewalk.encodings.base import SITES, Encoding

    about, arxiv = _about(cls.__module__)
    entry = {"kind": cls.Config.model_fields["kind"].default, "class": cls.__name__}
    if cls.sites is not Encoding.sites:
        # Made of other encodings: it has no sites, claims or parameters but theirs.
        return entry | {"sites": None, "learned": None, "claims": None, "arxiv": arxiv, "about": about}
    sites = [site for site in SITES if getattr(cls, site) is not getattr(Encoding, site)]
    sample = _sample(cls)
    if sample is None:
        claims, learned = cls.claims, cls.reset_parameters is not Encoding.reset_parameters
    else:
        claims, learned = sample.claims, any(True for _ in sample.parameters())
    said = {name: value for name, value in asdict(claims).items() if name != "longest"}
    said["bounded"] = claims.longest is not None
    return entry | {"sites": sites, "learned": learned, "claims": said, "arxiv": arxiv, "about": about}


def _claims(said: dict[str, bool] | None) -> str:
    """What is not so of every encoding."""
    if said is None:
        return ITS_PARTS
    words = [name.replace("_", " ") for name, holds in said.items() if holds and name not in USUAL]
    return ", ".join([*words, *(less for name, less in USUAL.items() if not said[name])]) or "-"


def _sample(cls: type[Encoding]) -> Encoding | None:
    """A small one with the default settings; a length that must be given is 16."""
    needed: dict[str, Any] = {name: 16 for name, field in cls.Config.model_fields.items() if field.is_required()}
    try:
        return cls(width=64, heads=4, head_width=16, **needed)
    except ValueError:
        return None


def _about(module: str) -> tuple[str, list[str]]:
    """The first sentence of a module's docstring, and the articles it names."""
    text = importlib.import_module(module).__doc__ or ""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    sentence = re.split(r"(?<=[.])\s+(?=[A-Z])", paragraph)[0]
    return sentence, list(dict.fromkeys(re.findall(r"arXiv[: ](\d{4}\.\d{4,5})", text)))
