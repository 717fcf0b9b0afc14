"""`ropewalk compare`."""
