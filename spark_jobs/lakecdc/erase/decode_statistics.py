"""Key values in statistics files: partition values, and column sketches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow.parquet as pq

# leading columns of partition statistics, and all that may follow (Iceberg's table specification, partition
# statistics file)
_OF_PARTITIONS = ["partition", "spec_id"]
_COUNTS = {
    *("data_record_count", "data_file_count", "total_data_file_size_in_bytes", "total_record_count", "dv_count"),
    *("position_delete_record_count", "position_delete_file_count"),
    *("equality_delete_record_count", "equality_delete_file_count"),
    *("last_updated_at", "last_updated_snapshot_id"),
}
# the only kind of Puffin blob without values
_POSITIONS = "deletion-vector-v1"
# bytes after a Puffin footer's payload: its size, flags, and the magic
_BEHIND = 12

Key = tuple[Any, ...]


def is_of_partitions(columns: Sequence[str]) -> bool:
    """Check whether a file with these columns contains partition statistics and nothing else."""
    return list(columns[:2]) == _OF_PARTITIONS and _COUNTS.issuperset(columns[2:])


def partitions_of(file: pq.ParquetFile) -> Iterable[Mapping[int, Any]]:
    """Yield the values of each partition in a Parquet statistics file, by partition field id."""
    of_struct = file.schema_arrow.field("partition").type
    ids = {each.name: int((each.metadata or {}).get(b"PARQUET:field_id", -1)) for each in of_struct}
    for batch in file.iter_batches(columns=["partition"]):
        for partition in batch.column("partition").to_pylist():
            yield {ids[name]: value for name, value in (partition or {}).items()}


def field_ids(schema: Any, *names: str) -> dict[str, int]:
    """Return the field ids of a record within an Avro schema, by name.

    :param names: of the fields that lead to the record; any may be missing.
    """
    for name in names:
        kind: Any = next((each["type"] for each in schema.get("fields", ()) if each["name"] == name), {})
        # an optional record is a union
        schema = next((each for each in kind if isinstance(each, dict)), {}) if isinstance(kind, list) else kind
    return {each["name"]: each.get("field-id", -1) for each in schema.get("fields", ())}


def partition_is_key(partition: Mapping[int, Any], fields_of: Sequence[Set[int]], keys: Collection[Key]) -> bool:
    """Check whether the values of a partition are a key.

    :param partition: by partition field id.
    :param fields_of: for each key column, the partition fields that keep some of its values unchanged.
    """
    values = [[partition[field] for field in fields if field in partition] for fields in fields_of]
    return any(key in keys for key in product(*values)) if values else False


def summarized_snapshots(stream: Any) -> list[int]:
    """Return the snapshots that a Puffin file summarizes; deletion vectors contain positions alone and do not count."""
    from pyiceberg.table.puffin import MAGIC_BYTES, PuffinFile

    size = stream.seek(0, 2)
    stream.seek(size - _BEHIND)
    start = size - _BEHIND - int.from_bytes(stream.read(4), "little")
    stream.seek(start)
    # skip the blobs, which may be larger than memory
    footer = PuffinFile(MAGIC_BYTES + stream.read(size - start)).footer
    return [blob.snapshot_id for blob in footer.blobs if blob.type != _POSITIONS]
