"""Run a job in a process: session, workers, progress, documents."""
