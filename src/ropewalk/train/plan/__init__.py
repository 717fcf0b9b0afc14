"""What a run would take, before it is started: memory, FLOPs, time."""
