"""What computes likelihoods: one engine, one file, each behind `passage.Engine`."""
