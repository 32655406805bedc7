"""A look at the source of tables before Spark is started: one that no run can read fails the task at once.

The source is asked by a program that may import its client (``lakecdc.probes.preflight``). What that program cannot
judge is left to the job.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.exceptions import CLASSES
from airflow_provider_lakecdc.lake.tables import read_position
from airflow_provider_lakecdc.submit import launcher
from airflow_provider_lakecdc.submit.failures import one_line
from lakecdc.contract.spec import RECONCILE
from lakecdc.metadata.source_state import SourceState

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from airflow_provider_lakecdc.submit.submission import Submission
    from lakecdc.contract.spec import JobSpec
    from lakecdc.metadata.positions import Position

log = logging.getLogger(__name__)

# a replay reads the quarantine
_JOBS = ("ingest", RECONCILE)
_THREADS = 4
_HINTS = {
    "bad input": "Spark was not started. Fix this, then clear the task.",
    "cluster": "Spark was not started. A retry helps once the source can be reached.",
}


def look(catalog: CatalogConnection, job: Submission, environment: Mapping[str, str]) -> None:
    """Ask the source of a job.

    :param environment: of the job's driver, which runs on this machine.
    :raises LakecdcJobError: no run can read the source; as one of its subclasses.
    """
    if job.spec.job not in _JOBS:
        return
    state = _ask(job, environment, _positions(catalog, job.spec))
    if state.refusal is not None:
        failure = CLASSES[state.failure_class or "unknown"]
        raise failure(f"The source cannot be read: {state.refusal}", hint=_HINTS.get(failure.failure_class))


def _ask(job: Submission, environment: Mapping[str, str], positions: Mapping[str, Position] | None) -> SourceState:
    encoded = None if positions is None else {table: position.encode() for table, position in positions.items()}
    question = json.dumps({"spec": job.document, "positions": encoded})
    done = launcher.run_probe("lakecdc.probes.preflight", question, environment)
    if done is None or done.returncode:
        log.warning("The source cannot be judged from here, and is left to Spark.")
        return SourceState()
    return SourceState.from_json(done.stdout)


def _positions(catalog: CatalogConnection, spec: JobSpec) -> dict[str, Position] | None:
    """Return where the targets stand in their source, without those that were never fed; None if that is not known."""
    if spec.job == RECONCILE or any(target.is_pattern for target in spec.targets):
        return None
    tables = [target.table for target in spec.targets]
    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            found = dict(zip(tables, pool.map(partial(read_position, catalog), tables), strict=True))
    except Exception as error:
        log.warning("The positions of tables cannot be read from here: %s", one_line(error))
        return None
    return {table: position for table, position in found.items() if position is not None}
