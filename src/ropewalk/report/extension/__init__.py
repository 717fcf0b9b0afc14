"""The page of an extension, its tables and figures."""
