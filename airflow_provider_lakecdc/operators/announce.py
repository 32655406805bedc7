"""The operator that announces changes of tables to their consumers, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from airflow.sdk import Asset, BaseOperator, Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import JobClusterError
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from airflow_provider_lakecdc.lake.tables import branch_snapshots, open_table, snapshot_facts
from airflow_provider_lakecdc.observe.assets import table_asset, tables_alias
from airflow_provider_lakecdc.submit.reporting import reports_of
from airflow_provider_lakecdc.submit.submission import is_true, table_list
from lakecdc.metadata.last_write import LastWrite, last_write

#: events from elsewhere, such as the web page, may be newer than ours
_MOST_EVENTS = 50


class AnnounceOperator(BaseOperator):
    """Raise the asset event of each table that was written since its last announcement.

    Airflow registers a task's events only if the task succeeds, so a task that writes tables cannot announce tables
    written before a failure, nor commits of its Spark application after the task was killed. Place this operator behind
    it with ``trigger_rule="all_done"``; it reads the tables themselves. A table's newest event records the last
    announcement, so event and record advance together, and the next run catches up if this task fails. A write may be
    announced twice, but is never missed; maintenance does not count as a write.

    The task succeeds regardless of earlier failures, so the DAG needs another last task that does not.

    :param tables: ``namespace.name`` of each table. (templated)
    :param after: ids of tasks whose reports name further tables and describe their changes.
    :param is_dry: the tasks before changed nothing, so announce nothing. (templated)
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``.
    """

    template_fields: Sequence[str] = ("tables", "is_dry")

    def __init__(
        self,
        *,
        tables: str | Sequence[str] = (),
        after: Sequence[str] = (),
        is_dry: bool | str = False,
        catalog_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()
        self._alias = tables_alias(self.catalog_conn_id)
        super().__init__(outlets=[self._alias], **kwargs)
        self.tables = tables
        self.after = list(after)
        self.is_dry = is_dry

    def execute(self, context: Context) -> dict[str, str]:
        """Announce new writes.

        :return: the announced snapshot by table.
        :raises AirflowSkipException: the run is a dry run.
        :raises JobClusterError: no table could be read.
        """
        if is_true(self.is_dry):
            raise AirflowSkipException("A dry run changes nothing.")
        reports = {name: facts for task in self.after for name, facts in reports_of(context, task).items()}
        catalog = get_catalog(self.catalog_conn_id)
        names = list(dict.fromkeys([*table_list(self.tables), *reports]))
        events = {name: self._event(catalog, name, reports.get(name, {})) for name in names}
        if names and all(event is None for event in events.values()):
            raise JobClusterError(
                "None of the tables can be read; see the log for the reasons. The next run catches up."
            )
        for name, event in events.items():
            if event:
                context["outlet_events"][self._alias].add(table_asset(self.catalog_conn_id, name), extra=event)
        announced = {name: str(event["snapshot_after"]) for name, event in events.items() if event}
        self.log.info("Announced: %s", announced or "nothing, no table was written")
        return announced

    def _event(self, catalog: CatalogConnection, name: str, reported: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the event of a table, empty if nothing is new; None if the table cannot be read."""
        try:
            before = last_announced(table_asset(self.catalog_conn_id, name))
            write = unannounced_write(catalog, name, before)
        except Exception:
            self.log.exception("Cannot read %s; the next run catches up", name)
            return None
        if write is None:
            return {}
        facts = reported if reported.get("snapshot_after") == write.snapshot_id else {"snapshot_before": before}
        return {
            "table": name,
            "job": write.job,
            **{key: value for key, value in facts.items() if value is not None},
            "snapshot_after": write.snapshot_id,
            "written_at": write.written_at,
        }


def last_announced(asset: Asset) -> str | None:
    """Return the snapshot in the newest event of a table's asset, or None; must run inside a task."""
    # a task's ``inlet_events`` needs the tables as inlets, and they are known only when it runs
    from airflow.sdk.execution_time.context import InletEventsAccessor

    events = InletEventsAccessor(asset_name=asset.name, asset_uri=asset.uri).ascending(False).limit(_MOST_EVENTS)
    named = (event.extra.get("snapshot_after") for event in events if event.extra)
    return next((str(snapshot) for snapshot in named if snapshot), None)


def unannounced_write(catalog: CatalogConnection, table: str, announced: str | None) -> LastWrite | None:
    """Return the newest write since the announced snapshot, or None; every write is newer than an expired one."""
    with open_table(catalog, table) as loaded:
        if loaded is None:
            return None
        since = takewhile(lambda snapshot: str(snapshot.snapshot_id) != announced, branch_snapshots(loaded))
        return last_write(map(snapshot_facts, since), loaded.properties)
