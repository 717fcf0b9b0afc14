"""What is known of each architecture: how its config spells positions, and what it is called elsewhere."""
