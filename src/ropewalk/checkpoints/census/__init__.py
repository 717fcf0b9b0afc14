"""Many checkpoints at once: their configs fetched politely, looked at and counted, and continued after any kill."""
