"""Choice of the engine that finds the rows which a group's equality deletes match."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.contract.errors import UnsupportedError
from lakecdc.iceberg import file_tasks
from lakecdc.iceberg.scan import column_names
from lakecdc.key_search.match import can_match_natively
from lakecdc.metadata.work import EXACT_DATA_RECORDS, EXACT_DELETE_RECORDS, EXACT_PAIRS

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.key_search.match import Engine
    from lakecdc.maintain.delete_files.plan import Group


def choose_engine(table: IcebergTable, group: Group, requested: str) -> Engine:
    """Choose the engine for a group.

    :param requested: the option: ``auto``, ``exact``, ``join`` or ``native``; what the native engine cannot match is
        joined.
    :raises UnsupportedError: only Iceberg's own reader still knows a dropped key column, but a join is requested or
        there are too many deletes for it.
    """
    dropped = any(column_names(table, ids) is None for ids in {delete.field_ids for delete in group.deletes})
    too_many = not all(task.paired for task in group.tasks)
    small = (
        not too_many
        and group.delete_records <= EXACT_DELETE_RECORDS
        and group.pairs <= EXACT_PAIRS
        and group.data_records <= EXACT_DATA_RECORDS
    )
    if dropped and (requested in ("join", "native") or too_many):
        raise UnsupportedError(
            "Cannot join the keys: a key column of the equality deletes was dropped.",
            table=table.name,
            hint="Use the engine 'exact' or 'auto'; with millions of deletes, compact_data_files.",
        )
    if requested == "exact" and too_many:
        raise UnsupportedError(
            f"The engine 'exact' supports {file_tasks.MAX_PAIRS} pairs of data and delete files; the table has more.",
            table=table.name,
            hint="Use the engine 'join' or 'auto'.",
        )
    if requested == "exact" or (requested == "auto" and (dropped or small)):
        return "exact"
    return "native" if requested != "join" and can_match_natively(table, group) else "join"
