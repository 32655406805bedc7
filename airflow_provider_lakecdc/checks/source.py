"""The source of the ingest DAG, asked by a program that may import its client (``lakecdc.source_checks``)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_lakecdc import launcher
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.hooks.source import source_from_connection
from airflow_provider_lakecdc.submission import check_spec, spec_document
from lakecdc.contract.findings import Finding, tried

if TYPE_CHECKING:
    from airflow_provider_lakecdc.templates.config import LakeConfig
    from lakecdc.contract.spec import JobSpec

_SECONDS = 60


def findings(config: LakeConfig, specs: list[JobSpec]) -> Iterator[Finding]:
    """Look at a configuration's source.

    :param config: with a source and targets.
    :param specs: takes what an ingest job would be told.
    """
    found: list[Finding] = []
    whole = tried("source", _ask, config, specs, found)
    # what has been found says more than that the program has ended
    yield from found or [whole]


def _ask(config: LakeConfig, specs: list[JobSpec], found: list[Finding]) -> Finding | str:
    catalog, source = get_catalog(config.catalog), dict(config.source)
    secrets = dict(catalog.secrets.values)
    if config.source_conn_id:
        source, more = source_from_connection(source, config.source_conn_id)
        secrets |= more.values
    parts = {"source": source, "target": [dict(target) for target in config.targets]}
    document = spec_document("ingest", catalog, (), config.job_options("ingest", "ingest"), **parts)
    specs.append(check_spec(document, "ingest"))
    done = launcher.started_here("lakecdc.source_checks", json.dumps(document), {**os.environ, **secrets}, _SECONDS)
    if done is None:
        return Finding("source", "fail", f"it has not answered in {_SECONDS} s", "Check its address, and the network.")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        remedy = "Install the extra [spark] into this Python, which brings the clients of sources."
        return Finding("source", "fail", f"it cannot be asked: {last}", remedy)
    found += [Finding.of(each) for each in json.loads(done.stdout)]
    return "asked"
