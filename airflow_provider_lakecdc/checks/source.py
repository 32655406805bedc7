"""Checks of the ingest DAG's source, in a process that may import its client (``lakecdc.probes.source_checks``)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.governance.discovery import TableSelection, select_tables
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from airflow_provider_lakecdc.hooks.source import source_from_connection
from airflow_provider_lakecdc.lake.tables import read_positions
from airflow_provider_lakecdc.submit import launcher
from airflow_provider_lakecdc.submit.failures import one_line
from airflow_provider_lakecdc.submit.submission import check_spec, spec_document
from lakecdc.contract.findings import Finding, run_check

if TYPE_CHECKING:
    from airflow_provider_lakecdc.templates.config import LakeConfig
    from lakecdc.contract.spec import JobSpec

log = logging.getLogger(__name__)


def findings(config: LakeConfig, specs: list[JobSpec]) -> Iterator[Finding]:
    """Check a configuration's source; ``specs`` receives the spec of an ingest job."""
    answers: list[Finding] = []
    whole = run_check("source", _ask, config, specs, answers)
    # the findings are more specific than the exit of the process
    yield from answers or [whole]


def _ask(config: LakeConfig, specs: list[JobSpec], answers: list[Finding]) -> str:
    catalog, source = get_catalog(config.catalog), dict(config.source)
    secrets = dict(catalog.secrets.values)
    if config.source_conn_id:
        source, more = source_from_connection(source, config.source_conn_id)
        secrets |= more.values
    parts = {"source": source, "target": config.complete_targets}
    document = spec_document("ingest", catalog, (), config.job_options("ingest", "ingest"), **parts)
    specs.append(check_spec(document, "ingest"))
    question = json.dumps({"spec": document, "positions": _positions(catalog, config)})
    output = launcher.ask_source("lakecdc.probes.source_checks", question, secrets)
    answers += [Finding.of(each) for each in json.loads(output)]
    return "queried"


def _positions(catalog: CatalogConnection, config: LakeConfig) -> dict[str, str] | None:
    """Return the log positions of the fed tables by table, or None if one cannot be read."""
    try:
        tables = select_tables(catalog, TableSelection(tuple(config.fed_tables))).tables
        feeds = {str(target["table"]): str(target.get("feed", "")) for target in config.targets}
        positions = read_positions(catalog, {table: feeds.get(table, "") for table in tables})
    except Exception as error:
        log.info("Cannot read the positions of tables: %s", one_line(error))
        return None
    return {table: position.encode() for table, position in positions.items()}
