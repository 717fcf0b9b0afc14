"""What is asked of an engine: each file one protocol, which is part of every number it gives."""
