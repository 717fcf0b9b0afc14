"""Divisors that no formula gives, searched for this model on the documents to search on; needs the extra `search`."""
