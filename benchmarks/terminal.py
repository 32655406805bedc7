"""Show a benchmark's progress lines and its final JSON; all other output goes into a log."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_own_lines(log: Path) -> Iterator[None]:
    """Reserve the terminal for what this process prints.

    Spark, its JVM and all programs started meanwhile inherit the log as their stdout and stderr.

    :param log: file for their output; appended to, as a benchmark may have several processes.
    :raises BaseException: the error that ends the benchmark, with a note that names the log.
    """
    # it logs when the process ends, and Airflow's logging would print that after the JSON
    logging.getLogger("py4j").setLevel(logging.WARNING)
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    streams, shown = [os.dup(number) for number in (1, 2)], sys.stdout
    with log.open("ab") as file, os.fdopen(os.dup(1), "w", buffering=1) as sys.stdout:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        try:
            yield
        except BaseException as error:
            error.add_note(f"What Spark and the others have said is in {log}.")
            raise
        finally:
            sys.stdout, _ = shown, sys.stdout.flush()
            sys.stderr.flush()
            for number, place in enumerate(streams, 1):
                os.dup2(place, number)
                os.close(place)
