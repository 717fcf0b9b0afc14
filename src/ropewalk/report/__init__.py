"""Results as pages that stand alone: one HTML file, nothing fetched, everything escaped."""

from __future__ import annotations
