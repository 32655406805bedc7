"""Event formats, each decoded into the canonical change frame."""
