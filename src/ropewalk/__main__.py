"""The command: `ropewalk`, and `python -m ropewalk` for launchers that start modules (torchrun -m ropewalk ...)."""
# No __future__ here: it would be the first import, and from the current folder (see outside.py).
# ruff: noqa: I002

READER_GONE = 141
"""As a shell reports a program that SIGPIPE ended. Left at its default, that signal would also end a training whose
socket breaks; and 0 would call a `verify` good that was cut off."""


def run() -> None:
    """The entry point."""
    from ropewalk.outside import leave_folder

    leave_folder()
    import os
    import sys

    from ropewalk.train.guard.launcher import die_with_parent

    die_with_parent()  # before anything large is imported, which takes seconds in which a launcher can die
    from ropewalk.cli.main import app

    out = sys.stdout  # click puts another in its place
    try:
        try:
            app(prog_name="ropewalk")
        finally:
            if out is not None:
                out.flush()
    except (SystemExit, BrokenPipeError) as end:
        # click and rich make an exit of 1 out of it, which here says that something wrong was found.
        if not isinstance(end, BrokenPipeError) and not isinstance(end.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # or Python's own flush at its end complains
        sys.exit(READER_GONE)


if __name__ == "__main__":
    run()
