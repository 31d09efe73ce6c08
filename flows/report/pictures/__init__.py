"""Charts as matplotlib figures, and as files."""
