"""`ropewalk extend`."""
