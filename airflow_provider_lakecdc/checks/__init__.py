"""Whether what jobs need is there: each module looks at one part of it, in seconds and without Spark."""
