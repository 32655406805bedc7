"""Write rows to data files, one per partition.

pyiceberg's ``Table.append`` needs pyiceberg-core for tables partitioned by day.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, WriteTask


def write_data_files(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[DataFile]:
    """Write rows as data files of the table, without a commit.

    :param rows: values by column.
    """
    from pyiceberg.io.pyarrow import write_file

    # threads: finish before the metadata that they use is copied
    return list(write_file(table.io, table.metadata, _tasks(table, rows)))


def _tasks(table: Table, rows: Sequence[Mapping[str, Any]]) -> Iterator[WriteTask]:
    import pyarrow as pa
    from pyiceberg.partitioning import PartitionFieldValue, PartitionKey
    from pyiceberg.table import WriteTask

    schema, spec, arrow, id = table.schema(), table.spec(), table.schema().as_arrow(), uuid.uuid4()
    sources = [(field, schema.find_field(field.source_id)) for field in spec.fields]
    transforms = [(source.name, field.transform.transform(source.field_type)) for field, source in sources]
    by_partition: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        by_partition[tuple(transform(row[name]) for name, transform in transforms)].append(row)
    for number, (values, members) in enumerate(by_partition.items()):
        fields = [PartitionFieldValue(field, value) for field, value in zip(spec.fields, values, strict=True)]
        batches = pa.Table.from_pylist(members, schema=arrow).to_batches()
        key = PartitionKey(fields, spec, schema)
        yield WriteTask(id, number, schema, batches, partition_key=key)
