"""The lab: position encodings in a browser, with arithmetic that is the library's bit for bit."""

from __future__ import annotations
