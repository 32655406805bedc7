"""Status of tables: deletes, engines that can read them, last write, health; from metadata alone, by pyiceberg."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.assess_table import health_of
from airflow_provider_lakecdc.lake.delete_debt import debt_of
from airflow_provider_lakecdc.lake.tables import (
    MAIN,
    branch_snapshots,
    is_kept_fresh,
    read_tables,
    snapshot_facts,
    summary_of,
)
from lakecdc.metadata import names, readers
from lakecdc.metadata.last_write import last_write

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection


def report_statuses(
    catalog: CatalogConnection,
    tables: Sequence[str],
    branch: str = MAIN,
    *,
    partitions: bool = False,
    health: bool = False,
) -> dict[str, dict[str, Any]]:
    """Return the status of each table, or only ``error`` if it does not exist or cannot be read."""

    def read(name: str, table: Table | None) -> dict[str, Any]:
        if table is None:
            return {"error": "The table does not exist."}
        return status_of(table, branch, partitions=partitions, health=health)

    return read_tables(catalog, tables, read, lambda _, error: {"error": f"{type(error).__name__}: {error}"})


def tables_of(catalog: CatalogConnection, namespace: str) -> list[str]:
    """Return the sorted names of a namespace's tables, without child namespaces."""
    with closing(catalog.load()) as opened:
        return sorted(".".join(name) for name in opened.list_tables(namespace))


def status_of(table: Table, branch: str = MAIN, *, partitions: bool = False, health: bool = False) -> dict[str, Any]:
    """Return the status of a loaded table.

    :param partitions: add the last change of each partition, with maintenance; this reads all manifests.
    :param health: add the read cost of the table's layout; this reads the head's manifests.
    :return: ``format_version``, the counts of :class:`lakecdc.metadata.debt.DeleteDebt`, ``ready_for_v4``,
        ``readable_by``, ``refused_by``, ``gained_by_rewrite`` (see :mod:`lakecdc.metadata.readers`), the ``readers``
        that it is promised to, ``readers_problem`` if it breaks the promise, ``last_write`` (see
        :class:`lakecdc.metadata.last_write.LastWrite`), whether ingestion keeps it fresh (``is_kept_fresh``), and
        perhaps ``partitions`` and ``health`` (see :class:`lakecdc.metadata.health.TableHealth`; None without a
        snapshot).
    """
    debt, version = debt_of(table, branch), table.format_version
    deletes = (debt.equality_delete_files, debt.position_delete_files)
    written = last_write(map(snapshot_facts, branch_snapshots(table, branch)), table.properties)
    promised = recorded_readers(table)
    misfit = misfit_of(table, promised, branch)
    status: dict[str, Any] = {
        "format_version": version,
        **debt.counts(),
        # existing ones stay valid in version 4, but every engine must keep reading them
        "ready_for_v4": not debt.equality_delete_files,
        "readable_by": readers.readable_by(version, *deletes),
        "refused_by": readers.refused_by(version, *deletes),
        "gained_by_rewrite": readers.gained_by_rewrite(version, *deletes),
        "readers": promised,
        "readers_problem": str(misfit) if misfit else None,
        "last_write": written.facts(datetime.now(UTC)) if written else None,
        "is_kept_fresh": is_kept_fresh(table),
    }
    if partitions:
        status["partitions"] = _partitions(table, branch)
    if health:
        measured = health_of(table, branch)
        status["health"] = measured.facts() if measured else None
    return status


def recorded_readers(table: Table) -> list[str]:
    """Return the known readers that ``set_readers`` has recorded in a table."""
    recorded = table.properties.get(names.READERS, "").split(",")
    return [name for name in recorded if name in readers.SHORT_NAMES]


def misfit_of(
    table: Table, engines: Sequence[str], branch: str = MAIN, deletes: readers.Deletes = "none"
) -> readers.Misfit | None:
    """Return why a table does not fit its readers; None if it does.

    :param deletes: the kind that will be written to it.
    """
    head = next(branch_snapshots(table, branch), None)
    summary = summary_of(head) if head else {}
    columns = json.loads(table.schema().model_dump_json())["fields"]
    return readers.find_misfit(engines, table.format_version, summary, deletes, columns)


def _partitions(table: Table, branch: str) -> list[dict[str, Any]]:
    head = next(branch_snapshots(table, branch), None)
    if head is None:
        return []
    partitions = table.inspect.partitions(head.snapshot_id).to_pylist()
    return [
        {
            "partition": {name: str(value) for name, value in (each.get("partition") or {}).items()},
            "last_changed": f"{each['last_updated_at'].isoformat()}+00:00" if each["last_updated_at"] else None,
            "records": each["record_count"],
        }
        for each in partitions
    ]
