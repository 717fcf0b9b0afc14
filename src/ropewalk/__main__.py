"""`python -m ropewalk` is `ropewalk`, for launchers that start modules (torchrun -m ropewalk ...)."""

from __future__ import annotations

from ropewalk.cli.main import run

if __name__ == "__main__":
    run()
