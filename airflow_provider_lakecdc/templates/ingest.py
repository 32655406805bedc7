"""The DAG that feeds tables from a source."""

from __future__ import annotations

from airflow.sdk import DAG, TriggerRule

from airflow_provider_lakecdc.hooks.source import placeholder_address
from airflow_provider_lakecdc.operators.announce import AnnounceOperator
from airflow_provider_lakecdc.operators.ingest import IngestOperator
from airflow_provider_lakecdc.templates import params
from airflow_provider_lakecdc.templates.config import LakeConfig
from airflow_provider_lakecdc.templates.steps import feeding_step, finish, new_dag
from lakecdc.contract.errors import SpecError
from lakecdc.contract.sources import parse_source
from lakecdc.contract.spec import LOADED_SOURCES
from lakecdc.contract.target import parse_targets

_DOC = """
Feeds **{tables}** in the catalog `{catalog}` from a source of type `{source}`.

Each run continues where the last one ended; the position is committed with the data, so a repeated or interrupted run
neither loses nor duplicates changes. {interval}

`announce` raises the asset event of `iceberg://{catalog}/<namespace.table>` for each written table, even if `ingest`
failed for others; the next run catches up on missed announcements. `finished` decides the state of the run.
"""

_CURSOR = "The source is a cursor: runs ignore their data interval and backfills are refused."
_BY_TIME = (
    "A run reads its data interval, and again if it is repeated; backfills of older intervals do not overwrite newer "
    "rows. Only one task works at a time, also in a backfill."
)


def ingest_dag(config: LakeConfig) -> DAG:
    """Create the DAG that ingests the source's changes into all targets.

    :param config: has ``source`` and ``targets``.
    :raises ValueError: either is missing.
    :raises SpecError: the job would refuse them; Airflow shows it as the DAG file's import error.
    """
    if not config.source or not config.targets:
        raise ValueError("The ingest DAG needs a source and at least one target.")
    kind = str(config.source.get("type"))
    address = placeholder_address(kind) if config.source_conn_id else {}
    parse_source({**address, **config.source}, parse_targets(list(config.targets)))
    by_time = kind == "jdbc" and config.source.get("interval", {}) is not None
    if by_time and config.schedules.assets.get("ingest"):
        raise SpecError(
            "schedules.assets.ingest starts runs without a data interval, which this source needs.",
            hint='Remove it, or set "interval": null in the source, which makes it a cursor.',
        )
    interval = _BY_TIME if by_time else _CURSOR
    doc = _DOC.format(tables=", ".join(config.target_tables), catalog=config.catalog, source=kind, interval=interval)
    run_params = params.run_params(config.target_tables)
    reload = {}
    if kind in LOADED_SOURCES:
        run_params |= params.reload_param(config.target_tables)
        reload = {"reload": params.RELOADED}
    # a replication slot has one reader, and a log should be read once: the tables share one application
    size = 0 if kind in ("postgres", "mysql") else config.tables_per_application
    with new_dag(config, "ingest", doc, run_params, may_backfill=by_time) as dag:
        step = feeding_step(
            IngestOperator,
            config,
            {**reload, **config.job_options("ingest", "ingest")},
            size,
            # runs of a backfill start all at once, whatever the DAG's limit of active runs
            max_active_tis_per_dag=1 if by_time else None,
        )
        announce = AnnounceOperator(
            task_id="announce",
            # only the job knows the tables of a pattern
            tables=[table for table in config.target_tables if "{" not in table],
            after=[step.task_id],
            is_dry=params.IS_DRY_RUN,
            catalog_conn_id=config.catalog,
            trigger_rule=TriggerRule.ALL_DONE,
        )
        step >> announce
        finish([step, announce])
    return dag
