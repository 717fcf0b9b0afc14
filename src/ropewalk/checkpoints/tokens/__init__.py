"""Tokenizers of checkpoints, from tokenizer.json or a GGUF vocabulary."""
