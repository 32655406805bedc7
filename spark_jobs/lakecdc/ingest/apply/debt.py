"""Delete debt: equality deletes make every read dearer until ``rewrite_delete_files`` has paid them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.contract.errors import ConflictError
from lakecdc.metadata.totals import equality_delete_files

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable


def outstanding(table: IcebergTable) -> int:
    """Live equality-delete files, from the snapshot summaries alone."""
    return equality_delete_files(snapshot.summary for snapshot in table.ancestors())


def check(table: IcebergTable, limit: int) -> None:
    """Stop a table whose debt has reached the limit.

    :param limit: number of equality-delete files; 0 is no limit.
    :raises ConflictError: naming the job that helps.
    """
    found = outstanding(table) if limit else 0
    if found and found >= limit:
        raise ConflictError(
            f"{found} equality-delete files are outstanding, and max_delete_files is {limit}: no further batch was "
            "taken, and what is new waits.",
            table=table.name,
            hint="Run the job rewrite_delete_files on the table, then ingest again.",
            delete_files=found,
        )
