"""Tables with positions, made by pyiceberg in a SQLite catalog: no Spark is needed to test what reads them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from lakecdc.metadata import names
from lakecdc.metadata.positions import Position, encode_idle

ROW = pa.table({"id": pa.array([1], pa.int64())})


def position(read_through: str | None) -> Position:
    """A position of a log at some moment."""
    return Position("postgres", "cluster-1", {"lsn": "0/1"}, read_through)


class FedTable:
    """A table as the ingest job leaves it.

    :param properties: the catalog's, as the Airflow connection ``lake`` holds them.
    """

    def __init__(self, properties: dict[str, str], name: str = "shop.orders") -> None:
        self.catalog = SqlCatalog("lake", **{key: value for key, value in properties.items() if key != "type"})
        self.catalog.create_namespace_if_not_exists("shop")
        self.table: Table = self.catalog.create_table(name, ROW.schema)

    def ingest(self, read_through: str | None) -> int:
        """Commit a row with a position; the snapshot's id."""
        return self._commit({names.POSITIONS: position(read_through).encode()})

    def maintain(self) -> int:
        """Commit without a position; the snapshot's id."""
        return self._commit({})

    def stay_idle(self, after: int, read_through: str) -> None:
        """Note that nothing happened up to a moment."""
        with self.table.transaction() as transaction:
            transaction.set_properties({names.IDLE_POSITION: encode_idle(after, position(read_through))})

    def roll_back(self, snapshot: int) -> None:
        """Set the main branch to an earlier snapshot."""
        self.table.manage_snapshots().create_branch(snapshot_id=snapshot, branch_name="main").commit()

    def _commit(self, summary: dict[str, Any]) -> int:
        self.table.append(ROW, snapshot_properties=summary)
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id
