"""Append rows exactly once, with any number of writers and lost answers of the catalog.

Each commit carries its batch's id in the snapshot summary, and requires the head whose history lacked that id. Of two
writers of one batch, or of two requests with one delayed, at most one commits.

pyiceberg's own retries are not enough: after a conflict they look only for their own snapshot, not for another
writer's, and after the last failure they delete manifests of a commit that may have succeeded.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecdc.lake.tables import branch_snapshots, commit_attempts, summary_of
from lakecdc.metadata import names

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, WriteTask

    from airflow_provider_lakecdc.audit.outbox import Batch

_ATTEMPTS = 100
# clock skew between workers and other committers
_CLOCKS = timedelta(hours=1)


def append_once(catalog: Catalog, batch: Batch, seconds: float) -> None:
    """Append a batch's rows unless the table has them; create the table if it does not exist.

    After an exception the outcome is unknown; call again.

    :param seconds: no attempt starts later than this.
    :raises CommitFailedException: other writers won every attempt.
    """
    commit_attempts(_ATTEMPTS, longest_wait=2, seconds=seconds)(_attempt, catalog, batch)


def holds(table: Table, batch: Batch) -> bool:
    """Check whether a batch's rows are in the table's history.

    Snapshots are checked first, and the rows if the snapshots of the batch's time have expired.
    """
    snapshot = None
    for snapshot in branch_snapshots(table):
        if summary_of(snapshot).get(names.COMMIT_ID) == batch.id:
            return True
        if snapshot.timestamp_ms < (batch.made_at - _CLOCKS).timestamp() * 1000:
            return False
    # some engines keep the id of an expired parent; the first snapshot has sequence number 1
    return snapshot is not None and snapshot.sequence_number != 1 and _has_rows(table, batch)


def _has_rows(table: Table, batch: Batch) -> bool:
    row = batch.rows[0]
    # ids and moments need no quoting
    return table.scan(f"{batch.table.moment} = '{row[batch.table.moment]}' and row_id = '{row['row_id']}'").count() > 0


def _attempt(catalog: Catalog, batch: Batch) -> None:
    from pyiceberg.exceptions import CommitFailedException
    from pyiceberg.io.pyarrow import write_file

    table = batch.table.open(catalog)
    if holds(table, batch):
        return
    trial = _Trial(table)
    try:
        # pyiceberg's Table.append needs pyiceberg-core for tables partitioned by day
        tasks = _tasks(trial.table, batch.table.stored(batch.rows))
        # its threads must finish before the metadata that they use is copied
        files = list(write_file(trial.table.io, trial.table.metadata, tasks))
        with (
            trial.table.transaction() as transaction,
            transaction.update_snapshot({names.COMMIT_ID: batch.id}).fast_append() as append,
        ):
            for file in files:
                append.append_data_file(file)
    except CommitFailedException:
        if not holds(table.refresh(), batch):
            # its required head is gone, so it cannot commit later
            trial.remove_files()
            raise


class _Trial:
    """A table that commits once, and keeps the files of a failed commit until :meth:`remove_files`."""

    def __init__(self, table: Table) -> None:
        from pyiceberg.io import FileIO, InputFile, OutputFile
        from pyiceberg.table import Table as IcebergTable

        self._io = io = table.io
        self._written = written = set[str]()

        class TrackingIO(FileIO):
            def new_input(self, location: str) -> InputFile:
                return io.new_input(location)

            def new_output(self, location: str) -> OutputFile:
                written.add(location)
                return io.new_output(location)

            def delete(self, location: str | InputFile | OutputFile) -> None:
                if location not in written:
                    io.delete(location)

        properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
        metadata = table.metadata.model_copy(update={"properties": properties})
        self.table = IcebergTable(
            table.name(), metadata, table.metadata_location, TrackingIO(io.properties), table.catalog, table.config
        )

    def remove_files(self) -> None:
        for location in self._written:
            with suppress(Exception):
                self._io.delete(location)


def _tasks(table: Table, rows: Sequence[Mapping[str, Any]]) -> Iterator[WriteTask]:
    """Yield the writes of rows, one per partition."""
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
