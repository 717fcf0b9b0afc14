"""Files that are not to be trusted: told apart by their first bytes, read within bounds, fetched from a hub."""
