"""What keeps a run alive or ends it in order: faults, signals, hangs, a lease on the directory, drift of settings."""
