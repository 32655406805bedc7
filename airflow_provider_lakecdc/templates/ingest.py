"""The DAG that feeds tables from a source."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider_lakecdc.assets import tables_alias
from airflow_provider_lakecdc.hooks.source import stand_in
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.templates.config import LakeConfig
from airflow_provider_lakecdc.templates.steps import mapped_step, new_dag
from lakecdc.contract.secrets import refuse_literals
from lakecdc.contract.sources import parse_source
from lakecdc.contract.target import parse_targets

_DOC = """
Feeds **{tables}** in the catalog `{catalog}` from a source of type `{source}`.

Each run takes up where the last one ended; the position is committed with the data, so a run that is repeated, or that
dies half-way, neither loses nor doubles a change. {interval} Tables that have changed
raise the asset `iceberg://{catalog}/<namespace.table>`.
"""

_CURSOR = "The source is a cursor: runs ignore their data interval and backfills are refused."
_BY_TIME = (
    "A run reads its data interval, again if it is repeated; backfills of older intervals leave newer rows alone."
)


def ingest_dag(config: LakeConfig) -> DAG:
    """Ingest the source's changes into all target tables.

    :param config: needs ``source`` and ``targets``.
    :raises ValueError: if either is missing.
    :raises SpecError: if the job would refuse them; Airflow shows it as the DAG file's import error.
    """
    if not config.source or not config.targets:
        raise ValueError("The ingest DAG needs a source and at least one target.")
    _check(config)
    kind = str(config.source.get("type"))
    by_time = kind == "jdbc" and config.source.get("interval", {}) is not None
    interval = _BY_TIME if by_time else _CURSOR
    doc = _DOC.format(tables=", ".join(config.target_tables), catalog=config.catalog, source=kind, interval=interval)
    with new_dag(config, "ingest", doc) as dag:
        mapped_step(
            IngestOperator,
            config,
            config.target_tables,
            config.job_options("ingest", "ingest"),
            # a replication slot has one reader, and a log is best read once: its tables share one application
            tables_per_application=0 if kind in ("postgres", "mysql") else config.tables_per_application,
            source=config.source,
            targets=list(config.targets),
            source_conn_id=config.source_conn_id,
            outlets=[tables_alias(config.catalog)],
        )
    return dag


def _check(config: LakeConfig) -> None:
    address = stand_in(str(config.source.get("type"))) if config.source_conn_id else {}
    parse_source({**address, **config.source}, parse_targets(list(config.targets)))
    refuse_literals(config.source, "source")
