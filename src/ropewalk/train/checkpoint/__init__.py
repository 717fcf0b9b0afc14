"""Checkpoints of a run: written atomically with hashes, read without trust, and the model directory at the end."""
