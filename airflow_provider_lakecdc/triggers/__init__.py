"""Poll tables in the triggerer for the deferrable sensors and for asset watchers."""
