"""The DAGs that feed tables: from a source, and from the quarantine on demand."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, Param, TriggerRule
from airflow.sdk.definitions.callback import AsyncCallback
from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from airflow_provider_lakecdc.governance.alerts import alert_missed_deadline
from airflow_provider_lakecdc.hooks.source import placeholder_address
from airflow_provider_lakecdc.operators.announce import AnnounceOperator
from airflow_provider_lakecdc.templates.config import LakeConfig
from airflow_provider_lakecdc.templates.schedules import REPLAY
from airflow_provider_lakecdc.templates.steps import (
    IS_DRY_RUN,
    RELOADED,
    RULES,
    feeding_step,
    finish,
    new_dag,
    run_params,
    tables_param,
)
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse_duration
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

_REPLAY_DOC = """
Replays quarantined messages of **{tables}** after the feed or the table has been corrected. They keep their order, so
an old one never overwrites a newer state; those that still cannot be applied stay.

It runs when triggered on this page or with a button of the page *Lakehouse*.
"""


def ingest_dag(config: LakeConfig) -> DAG:
    """Create the DAG that ingests the source's changes into all targets.

    :raises ValueError: ``source`` or ``targets`` are missing.
    :raises SpecError: the job would refuse them; Airflow shows it as the DAG file's import error.
    """
    if not config.source or not config.targets:
        raise ValueError("The ingest DAG needs a source and at least one target.")
    kind = str(config.source.get("type"))
    address = placeholder_address(kind) if config.source_conn_id else {}
    parse_source({**address, **config.source}, parse_targets(config.complete_targets))
    by_time = kind == "jdbc" and config.source.get("interval", {}) is not None
    if by_time and config.schedules.assets.get("ingest"):
        raise SpecError(
            "schedules.assets.ingest starts runs without a data interval, which this source needs.",
            hint='Remove it, or set "interval": null in the source, which makes it a cursor.',
        )
    interval = _BY_TIME if by_time else _CURSOR
    doc = _DOC.format(tables=", ".join(config.target_tables), catalog=config.catalog, source=kind, interval=interval)
    form = run_params(config.target_tables)
    reload = {}
    if kind in LOADED_SOURCES:
        text = "Load these tables in full again; readers see the old rows until the load is complete."
        form["reload"] = tables_param(config.target_tables, "Reload", text)
        reload = {"reload": RELOADED}
    # a replication slot has one reader, and a log should be read once: the tables share one application
    size = 0 if kind in ("postgres", "mysql") else config.tables_per_application
    with new_dag(config, "ingest", doc, form, may_backfill=by_time, deadline=_deadline(config)) as dag:
        step = feeding_step(
            "ingest",
            config,
            {**reload, **config.job_options("ingest", "ingest")},
            size,
            # runs of a backfill start all at once, regardless of the DAG's limit of active runs
            max_active_tis_per_dag=1 if by_time else None,
        )
        announce = AnnounceOperator(
            task_id="announce",
            # only the job knows the tables of a pattern
            tables=[table for table in config.target_tables if "{" not in table],
            after=[step.task_id],
            is_dry=IS_DRY_RUN,
            catalog_conn_id=config.catalog,
            trigger_rule=TriggerRule.ALL_DONE,
        )
        step >> announce
        finish([step, announce])
    return dag


def _deadline(config: LakeConfig) -> DeadlineAlert | None:
    """Return the alert about runs that take longer than the shortest promised freshness, if alerts are configured."""
    alerts = config.alerts
    if not alerts.missed_freshness or alerts.notifier is None:
        return None
    seconds, promised = min((parse_duration(each, "freshness"), each) for each in config.promises.values() if each)
    arguments = {"promised": promised, "notifier": alerts.notifier, "arguments": alerts.arguments}
    # readers see the changes that a run finds when it begins only once it has committed them
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(seconds=seconds),
        callback=AsyncCallback(alert_missed_deadline, arguments),
    )


def replay_quarantine_dag(config: LakeConfig) -> DAG:
    """Create the DAG that replays quarantined messages of the target tables; it has no schedule.

    :raises ValueError: ``source`` or ``targets`` are missing.
    """
    if not config.source or not config.targets:
        raise ValueError("The DAG that replays the quarantine needs a source and at least one target.")
    doc = _REPLAY_DOC.format(tables=", ".join(config.target_tables))
    quarantine = config.job_options("ingest", "ingest").get("quarantine_table")
    options = config.job_options("ingest", "replay_quarantine", quarantine_table=quarantine)
    text = "Replay only messages that broke these rules, such as type; leave it empty for all."
    rules = Param(None, type=["null", "array"], items={"type": "string"}, title="Rules", description=text)
    with new_dag(config, REPLAY, doc, run_params(config.target_tables) | {"rules": rules}) as dag:
        finish([feeding_step("replay_quarantine", config, options, 0, rules=RULES)])
    return dag
