"""The command: `ropewalk`, and `python -m ropewalk` for launchers that start modules (torchrun -m ropewalk ...)."""
# No __future__ here: it would be the first import, and from the current folder (see outside.py).
# ruff: noqa: I002


def run() -> None:
    """The entry point."""
    from ropewalk.outside import leave_folder

    leave_folder()
    from ropewalk.cli.main import app

    app(prog_name="ropewalk")


if __name__ == "__main__":
    run()
