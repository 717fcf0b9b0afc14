"""What is drawn for each sequence as it is read: masks, and positions that leave some out."""
