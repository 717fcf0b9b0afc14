"""The command line: `main` and one file for each command. Importing it imports no torch."""

from __future__ import annotations
