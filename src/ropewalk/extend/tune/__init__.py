"""A model trained for the new length on sequences of the old one, whose positions skip (PoSE), and what that bought."""
