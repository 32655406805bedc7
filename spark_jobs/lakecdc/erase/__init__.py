"""Erasing rows, from a table and all that is kept beside it, with a proof."""
