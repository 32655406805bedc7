"""Append rows exactly once, with any number of writers and lost answers of the catalog.

Each commit carries its batch's id in the snapshot summary, and requires the head in whose history that id was looked
for. Of two writers of one batch, or of two requests with one delayed, at most one commits.

pyiceberg's own retries are not enough: after a conflict they look only for their own snapshot, not for that of another
writer of the batch, and after the last failure they delete manifests of a commit that may have succeeded.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.audit.data_files import write_data_files
from airflow_provider_lakecdc.lake.tables import branch_snapshots, summary_of
from lakecdc.metadata import names

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.audit.batch import Batch

_ATTEMPTS = 100
# clock skew between workers and other committers
_CLOCKS = timedelta(hours=1)


def append_once(catalog: Catalog, batch: Batch, seconds: float) -> None:
    """Append a batch's rows unless the table has them; create the table if it does not exist.

    :param seconds: no attempt starts later than this.
    :raises CommitFailedException: other writers won every attempt. After any other exception the outcome is unknown;
        call again in both cases.
    """
    from pyiceberg.exceptions import CommitFailedException
    from tenacity import (
        Retrying,
        retry_if_exception_type,
        stop_after_attempt,
        stop_after_delay,
        wait_random_exponential,
    )

    attempts = Retrying(
        retry=retry_if_exception_type(CommitFailedException),
        stop=stop_after_attempt(_ATTEMPTS) | stop_after_delay(seconds),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        reraise=True,
    )
    attempts(_attempt, catalog, batch)


def holds(table: Table, batch: Batch) -> bool:
    """Check whether a batch's rows are in the table's history.

    Snapshots are checked first; if those of the batch's time have expired, the rows are.
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

    table = batch.table.open(catalog)
    if holds(table, batch):
        return
    trial = _Trial(table)
    try:
        files = write_data_files(trial.table, batch.table.stored(batch.rows))
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
    """A table that commits once and alone deletes the files of a failed commit."""

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
        """Remove the files of a commit that failed."""
        for location in self._written:
            with suppress(Exception):
                self._io.delete(location)
