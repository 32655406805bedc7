"""A branch that is read like the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.iceberg.table import IcebergTable
from lakecdc.sql import literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import Snapshot


class Branch(IcebergTable):
    """A table as one of its branches shows it: head, ancestors and rows are the branch's, the columns are current.

    :param branch: its name.
    """

    def __init__(self, table: IcebergTable, branch: str) -> None:
        super().__init__(table.spark, table.catalog, table.name)
        self._branch = branch
        self.refresh()

    def head(self, branch: str | None = None) -> Snapshot | None:
        """Return the newest snapshot of the branch, or of another one."""
        return super().head(branch or self._branch)

    def ancestors(self, branch: str | None = None) -> Iterator[Snapshot]:
        """Yield the snapshots of the branch, or of another one, from its head towards the root."""
        return super().ancestors(branch or self._branch)

    def read(self, snapshot_id: int | None = None, columns: str = "*", where: str = "true") -> DataFrame:
        """Read rows of the branch; see :meth:`IcebergTable.read`."""
        if snapshot_id is not None:
            return super().read(snapshot_id, columns, where)
        at = literal(self._branch)
        return self.spark.sql(f"SELECT {columns} FROM {self.sql_name} VERSION AS OF {at} WHERE {where}")
