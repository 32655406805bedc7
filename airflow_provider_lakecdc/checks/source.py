"""The source of the ingest DAG, asked by a program that may import its client (``lakecdc.probes.source_checks``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.hooks.source import source_from_connection
from airflow_provider_lakecdc.submit import launcher
from airflow_provider_lakecdc.submit.submission import check_spec, spec_document
from lakecdc.contract.findings import Finding, tried

if TYPE_CHECKING:
    from airflow_provider_lakecdc.templates.config import LakeConfig
    from lakecdc.contract.spec import JobSpec


def findings(config: LakeConfig, specs: list[JobSpec]) -> Iterator[Finding]:
    """Look at a configuration's source.

    :param config: with a source and targets.
    :param specs: takes what an ingest job would be told.
    """
    found: list[Finding] = []
    whole = tried("source", _ask, config, specs, found)
    # what has been found says more than that the program has ended
    yield from found or [whole]


def _ask(config: LakeConfig, specs: list[JobSpec], found: list[Finding]) -> str:
    catalog, source = get_catalog(config.catalog), dict(config.source)
    secrets = dict(catalog.secrets.values)
    if config.source_conn_id:
        source, more = source_from_connection(source, config.source_conn_id)
        secrets |= more.values
    parts = {"source": source, "target": [dict(target) for target in config.targets]}
    document = spec_document("ingest", catalog, (), config.job_options("ingest", "ingest"), **parts)
    specs.append(check_spec(document, "ingest"))
    told = launcher.ask_source("lakecdc.probes.source_checks", json.dumps(document), secrets)
    found += [Finding.of(each) for each in json.loads(told)]
    return "asked"
