"""Scripts for spark-submit, one per job; the library is ``lakecdc``."""
