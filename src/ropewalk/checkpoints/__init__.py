"""Checkpoints of other frameworks: read safely, positions resolved, loaded into the one Transformer, written back."""
