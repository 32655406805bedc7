"""Keep slowly changing dimensions: every version of a row, with the time for which it was valid."""
