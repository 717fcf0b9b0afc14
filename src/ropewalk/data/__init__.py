"""What models are trained on: prepared token files, rows made of them, batches in an order that is a pure function."""
