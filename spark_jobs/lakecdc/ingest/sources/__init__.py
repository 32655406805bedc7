"""The sources that changes come from, one package or module per type."""
