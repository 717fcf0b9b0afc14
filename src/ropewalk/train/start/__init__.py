"""Training that starts from a checkpoint (`--from SRC`): what is read of it, and what the export keeps."""
