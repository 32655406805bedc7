"""Make tables with positions by pyiceberg: testing their readers needs no Spark."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriter, ManifestWriterV2
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record

from lakecdc.metadata import names
from lakecdc.metadata.exports import position_of
from lakecdc.metadata.positions import Position, encode_idle
from tests.lakes import open_catalog

ROW = pa.table({"id": pa.array([1], pa.int64())})


def position(read_through: str | None) -> Position:
    """Return a position of a log at some moment."""
    return Position("postgres", "cluster-1", {"lsn": "0/1"}, read_through)


class _DeleteManifest(ManifestWriterV2):
    """Write manifests of delete files, which pyiceberg cannot write but whose manifests it knows."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AddDeletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: PartitionSpec) -> ManifestWriter:
        return _DeleteManifest(spec, self.schema(), self.new_manifest_output(), self._snapshot_id, self._compression)


class FedTable:
    """A table as the ingest job leaves it.

    :param properties: catalog properties of the Airflow connection ``lake``.
    """

    def __init__(self, properties: dict[str, str], name: str = "shop.orders") -> None:
        self.catalog = open_catalog(properties)
        self.catalog.create_namespace_if_not_exists("shop")
        self.table: Table = self.catalog.create_table(name, ROW.schema)

    open = staticmethod(open_catalog)

    def break_metadata(self, text: str = "{") -> None:
        """Make the metadata unreadable."""
        Path(self.table.metadata_location.removeprefix("file://")).write_text(text)

    def upgrade_beyond_pyiceberg(self) -> None:
        """Set format version 4 in the metadata, which pyiceberg does not support."""
        metadata = self.table.metadata.model_dump_json()
        self.break_metadata(metadata.replace('"format-version":2', '"format-version":4'))

    def ingest(self, read_through: str | None, feed: str = "") -> int:
        """Commit a row with a position and return the snapshot's id."""
        return self._commit({names.POSITIONS: replace(position(read_through), feed=feed).encode()})

    def take_changes(self, of: FedTable, snapshot: int) -> int:
        """Commit a row like an export of another table's changes up to a snapshot; return the snapshot's id."""
        exported = position_of(".".join(of.table.name()), str(of.table.metadata.table_uuid), snapshot, None)
        return self._commit({names.POSITIONS: exported.encode()})

    def maintain(self) -> int:
        """Commit without a position and return the snapshot's id."""
        return self._commit({})

    def delete(
        self, *rows: int, by_position: bool = False, key: int = 1, summary: Mapping[str, str] | None = None
    ) -> int:
        """Commit delete files and return the snapshot's id. Their content is never read, so they need not exist.

        :param rows: rows per file.
        :param key: field id of the key of equality deletes.
        :param summary: additional entries of the snapshot's summary.
        """
        content = DataFileContent.POSITION_DELETES if by_position else DataFileContent.EQUALITY_DELETES
        with (
            self.table.transaction() as transaction,
            _AddDeletes(
                Operation.DELETE, transaction, self.table.io, snapshot_properties=dict(summary or {})
            ) as update,
        ):
            for count in rows:
                update.append_data_file(_delete_file(content, count, self.table, key))
        return self._head()

    def expire(self, *snapshots: int) -> None:
        """Expire snapshots."""
        self.table.maintenance.expire_snapshots().by_ids(list(snapshots)).commit()

    def stay_idle(self, after: int, read_through: str) -> None:
        """Record that nothing happened up to a moment."""
        with self.table.transaction() as transaction:
            transaction.set_properties({names.IDLE_POSITION: encode_idle(after, position(read_through))})

    def roll_back(self, snapshot: int) -> None:
        """Set the main branch to an earlier snapshot."""
        self.table.manage_snapshots().create_branch(snapshot_id=snapshot, branch_name="main").commit()

    def _commit(self, summary: dict[str, Any]) -> int:
        self.table.append(ROW, snapshot_properties=summary)
        return self._head()

    def _head(self) -> int:
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        return snapshot.snapshot_id


def _delete_file(content: DataFileContent, rows: int, table: Table, key: int) -> DataFile:
    file = DataFile.from_args(
        content=content,
        file_path=f"{table.location()}/data/{uuid.uuid4()}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=100,
        equality_ids=[key] if content == DataFileContent.EQUALITY_DELETES else None,
    )
    file.spec_id = 0
    return file
