"""`ropewalk inspect`."""
