"""One script per claim; the last line each prints is JSON."""
