"""Values that files of statistics tell: partitions by their values, columns by sketches of theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# columns that statistics of partitions begin with, and all that may follow (Iceberg's table specification, partition
# statistics file)
_OF_PARTITIONS = ["partition", "spec_id"]
_COUNTS = {
    *("data_record_count", "data_file_count", "total_data_file_size_in_bytes", "total_record_count", "dv_count"),
    *("position_delete_record_count", "position_delete_file_count"),
    *("equality_delete_record_count", "equality_delete_file_count"),
    *("last_updated_at", "last_updated_snapshot_id"),
}
# of a Puffin file's blobs the one kind that tells no values
_POSITIONS = "deletion-vector-v1"
# bytes of a Puffin file behind its footer's payload: the payload's size, flags, and the magic
_BEHIND = 12

Key = tuple[Any, ...]


def is_of_partitions(columns: Sequence[str]) -> bool:
    """Check whether a file with these columns has statistics of partitions, and nothing else."""
    return list(columns[:2]) == _OF_PARTITIONS and _COUNTS.issuperset(columns[2:])


def partitions_of(file: pq.ParquetFile) -> Iterable[Mapping[int, Any]]:
    """The values of each partition by the ids of the partition fields, as a Parquet file of statistics has them."""
    of_struct = file.schema_arrow.field("partition").type
    ids = {each.name: int((each.metadata or {}).get(b"PARQUET:field_id", -1)) for each in of_struct}
    for batch in file.iter_batches(columns=["partition"]):
        for partition in batch.column("partition").to_pylist():
            yield {ids[name]: value for name, value in (partition or {}).items()}


def field_ids(schema: Any, *names: str) -> dict[str, int]:
    """The field ids of a record within an Avro schema, by name.

    :param names: of the fields that lead to the record; none of them need be there.
    """
    for name in names:
        found: Any = next((each["type"] for each in schema.get("fields", ()) if each["name"] == name), {})
        # an optional record is a union
        schema = next((each for each in found if isinstance(each, dict)), {}) if isinstance(found, list) else found
    return {each["name"]: each.get("field-id", -1) for each in schema.get("fields", ())}


def tells_key(partition: Mapping[int, Any], kept: Sequence[Set[int]], keys: Collection[Key]) -> bool:
    """Whether the values of a partition are a key.

    :param partition: by the ids of the partition fields.
    :param kept: for each column of the key, the partition fields that keep some of its values as they are.
    """
    values = [[partition[field] for field in fields if field in partition] for fields in kept]
    return any(key in keys for key in product(*values)) if values else False


def summed_up(stream: Any) -> list[int]:
    """The snapshots whose values a Puffin file sums up; none of deletion vectors, which have positions alone."""
    from pyiceberg.table.puffin import MAGIC_BYTES, PuffinFile

    size = stream.seek(0, 2)
    stream.seek(size - _BEHIND)
    start = size - _BEHIND - int.from_bytes(stream.read(4), "little")
    stream.seek(start)
    # as if it had no blobs, which may be larger than memory
    footer = PuffinFile(MAGIC_BYTES + stream.read(size - start)).footer
    return [blob.snapshot_id for blob in footer.blobs if blob.type != _POSITIONS]
