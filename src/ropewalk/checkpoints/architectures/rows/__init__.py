"""One row for each `model_type`, by lineage. Read from configuration_*.py and modeling_*.py of transformers 5.22.2.

A base (`rope_theta`) stands in `defaults` only where published checkpoints leave it out; where they state it, a config
without one has lost it, and 10,000 would be a guess that works for a thousand tokens.
"""
