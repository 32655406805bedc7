"""How a folded batch becomes a commit, one module per mode."""
