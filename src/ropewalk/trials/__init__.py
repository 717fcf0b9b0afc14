"""Independent jobs, run by processes of this machine or of a Ray cluster."""
