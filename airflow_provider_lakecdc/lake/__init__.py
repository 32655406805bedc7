"""Read tables through pyiceberg: metadata, never a row."""
