"""The scripts that spark-submit runs, one per job; the library that does the work is ``lakecdc``."""
