"""The peers that claims are measured against, each with its documentation's recommended settings."""
