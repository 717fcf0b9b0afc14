"""What models are trained on: prepared token files, sequences cut from them, batches whose order is a pure function."""
