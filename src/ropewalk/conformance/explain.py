"""What a requirement asks for, which public bugs it comes from, a mutant that only it sees, and how to see it fail."""

from __future__ import annotations

from ropewalk.conformance import adapters
from ropewalk.conformance.checks import every
from ropewalk.conformance.mutants import MUTANTS, matrix
from ropewalk.conformance.spec import page, requirements


def explain(id: str) -> str:
    """For `ropewalk verify --explain N06`."""
    text, check = requirements()[id], every()[id]
    lines = [f"{id}  {text.title}", "", text.text.removesuffix("\n"), ""]
    needs = ", ".join(need.replace("|", " or ") for need in check.needs)
    declared = "" if check.declares is None else f" and declare {check.declares} in their spec"
    lines += [f"Applies to targets of kind {', '.join(check.kinds) or 'any'} that offer {needs}{declared}."]
    lines += [f"Test your own:  ropewalk verify MODULE:TARGET --only {id} -v", ""]
    if id not in matrix.APART:
        mutant, other = MUTANTS[matrix.OWN[id]], MUTANTS[matrix.BLAMELESS[id]]
        lines += [
            f"A mutant that only {id} sees: {mutant.why}",
            f"    - {mutant.lines[0]}",
            f"    + {mutant.lines[1]}",
            f"    like {mutant.url}",
            f"    ropewalk verify ropewalk.conformance.mutants:{mutant.name}",
            f"One that it must not blame, wrong elsewhere: {other.why}",
            f"    ropewalk verify ropewalk.conformance.mutants:{other.name}",
            "",
        ]
    known = [(name, cause) for name in adapters.names() for cause in adapters.causes(name) if id in cause["explains"]]
    lines += ["Libraries that are known to fail it; each reproduction runs without ropewalk:"] if known else []
    for name, cause in known:
        lines += [f"    {name}: {cause['reason']}", f"        python {adapters.reproduction(name, cause['id'])}"]
        lines += [f"        {link}" for key in ("issue", "introduced") if (link := cause.get(key))]
    return "\n".join([*lines, *([""] if known else []), page(id)])
