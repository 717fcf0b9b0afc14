"""A checkpoint written in another format, and the proof that it computes the same."""
