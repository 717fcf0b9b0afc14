"""Text and pairs into tokens on disk."""
