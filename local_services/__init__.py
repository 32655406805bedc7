"""Real services as local processes on 127.0.0.1, for the demo and the tests. Not part of the wheel."""
