"""The peers that claims are measured against, each with the settings that its documentation recommends."""
