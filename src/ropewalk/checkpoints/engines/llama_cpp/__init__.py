"""What llama.cpp makes of a checkpoint: its reading of positions, other things it changes, its flags."""
