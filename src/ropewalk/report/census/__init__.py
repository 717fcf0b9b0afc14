"""The page of `ropewalk inspect --many`."""
