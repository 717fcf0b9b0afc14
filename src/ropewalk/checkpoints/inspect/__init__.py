"""The report on a checkpoint: its plan, what each engine makes of it, lengths and overrides. No torch."""
