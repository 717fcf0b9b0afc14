"""From a config.json or the metadata of a GGUF file to a plan, each value with its source. No torch."""
