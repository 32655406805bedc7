"""Keys of equality-delete files, read by Python tasks because Spark needs a second for a hundred small files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakecdc.iceberg.core_time import counted
from lakecdc.iceberg.file_io import reaches, storage_properties
from lakecdc.local_relation import dealt
from lakecdc.maintain.delete_files.key_lookup import KeyColumn, UnreadError, packed, read_keys, unpacked
from lakecdc.runtime.worker import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.iceberg.live_deletes import EqualityDelete
    from lakecdc.iceberg.table import IcebergTable

_FILE = "number int, location string, reach int, deleted_at long"
_KEYS = "keys binary, unread array<int>"


def deleted_keys(
    table: IcebergTable, columns: tuple[KeyColumn, ...], deletes: Sequence[EqualityDelete]
) -> tuple[list[pa.Table], list[EqualityDelete]]:
    """Read equality-delete files of one key as far as Arrow reads them with certainty.

    :param columns: the key.
    :return: tables of d0…, reach and deleted_at, as in ``match_join``; and the deletes left to Iceberg's reader: not
        Parquet, without field ids, or without a key column as the table has it.
    """
    numbered = list(enumerate(deletes))
    near = [(number, d.location, d.scope, d.sequence_number) for number, d in numbered if reaches(d.location)]
    left = {number for number, delete in numbered if not reaches(delete.location)}
    keys = []
    if near:
        task = KeysTask(columns, storage_properties(table))
        for row in dealt(table.spark, near, _FILE).mapInArrow(counted(table.spark, task), _KEYS).collect():
            keys.append(unpacked(row["keys"]))
            left.update(row["unread"])
    return keys, [delete for number, delete in numbered if number in left]


@dataclass(frozen=True)
class KeysTask:
    """A task that reads delete files and returns all their keys.

    :param properties: pyiceberg settings of the table's FileIO; not shown, because they may contain credentials.
    """

    columns: tuple[KeyColumn, ...]
    properties: Mapping[str, str] = field(repr=False)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process the batches of a Python task."""
        import pyarrow as pa

        settle()
        tables, unread = [], []
        for file in (row for batch in batches for row in batch.to_pylist()):
            try:
                tables.append(read_keys(file["location"], self.columns, self.properties, file))
            except UnreadError:
                unread.append(file["number"])
        keys = packed(tables, self.columns)
        yield pa.RecordBatch.from_pydict(
            {"keys": pa.array([keys], pa.binary()), "unread": pa.array([unread], pa.list_(pa.int32()))}
        )
