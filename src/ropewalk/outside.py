"""Code outside the package: which folders may hold it, and when.

A person may name a module of their own (kind: my_pkg.cable), and it may lie in the current folder. That folder can also
be a model somebody else made, with an org.py that numpy's first import would find. So it is on sys.path only while a
module that a person named is imported, and only where that module is not installed.
"""
# Nothing but what Python itself has loaded by now is imported up here, not even __future__: where `python -m ropewalk`
# is run, the current folder comes before the standard library until `leave_folder` has taken it away.
# ruff: noqa: I002

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType


def leave_folder() -> None:
    """Take the current folder off sys.path, where `python -m` and an empty part of PYTHONPATH put it, and keep it off
    in processes started from here. A PYTHONPATH that names it in full is a person's wish, and stays."""
    os.environ["PYTHONSAFEPATH"] = "1"
    if _is_here(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))):
        return  # ropewalk itself lies here: whoever writes to this folder has written what is running
    if sys.path and not sys.flags.safe_path and _is_here(sys.path[0]):
        del sys.path[0]
    follows = os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.environ.get("PYTHONPATH") else []
    # Python has made those absolute.
    every = any(not os.path.isabs(part) and _is_here(part) for part in follows)
    sys.path[:] = [entry for entry in sys.path if entry not in ("", ".") and not (every and _is_here(entry))]


def import_named(name: str) -> "ModuleType":
    """The module a person named, from where modules are installed, or else from the current folder."""
    import importlib

    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # the module is there; something it imports is not
    here = os.getcwd()
    sys.path.append(here)
    try:
        return importlib.import_module(name)
    finally:
        # The last of its kind: the module may have put the same folder elsewhere for itself.
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(here)]


def _is_here(entry: str) -> bool:
    try:
        return os.path.samefile(entry or ".", ".")
    except OSError:
        return False
