"""Several models trained alike but for one thing: which is better, for what, with what certainty."""
