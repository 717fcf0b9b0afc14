"""From a checkpoint to a model: names and shapes matched, whole or as a stream, in place or patched."""
