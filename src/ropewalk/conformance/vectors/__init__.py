"""Golden vectors as plain data, for an implementation in any language."""
