"""Appends rows exactly once, however many writers there are and whatever becomes of a catalog's answers.

Each commit has its batch's id in the snapshot's summary, and asserts the head from which that id has been looked for.
So of two writers of one batch, or of two requests of which one is late, at most one can land.

pyiceberg's own tries would not do: after a conflict they look for their own snapshot alone, which another writer of the
same batch does not have, and a last refusal makes them delete the manifests of a commit that may have landed.
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
# clocks of workers and of the commits of others differ
_CLOCKS = timedelta(hours=1)


def append_once(catalog: Catalog, batch: Batch, seconds: float) -> None:
    """Append a batch's rows to their table, unless they are there already; make the table if there is none.

    :param seconds: after which no further try begins.
    :raises CommitFailedException: other writers were faster all that time. Any other exception tells that nobody knows
        whether the rows are there; both is mended by another call.
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
    """Tell whether a batch's rows are in the table's history.

    Snapshots say so as long as they are kept; where those of the batch's time have expired, the rows do.
    """
    snapshot = None
    for snapshot in branch_snapshots(table):
        if summary_of(snapshot).get(names.COMMIT_ID) == batch.id:
            return True
        if snapshot.timestamp_ms < (batch.made_at - _CLOCKS).timestamp() * 1000:
            return False
    # some engines leave the parent's id when the parent goes, some do not; but the first snapshot has the first number
    return snapshot is not None and snapshot.sequence_number != 1 and _has_rows(table, batch)


def _has_rows(table: Table, batch: Batch) -> bool:
    row = batch.rows[0]
    # ids and moments are our own text
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
            # its head is none any more, so that it cannot land later either
            trial.remove_files()
            raise


class _Trial:
    """A table that commits once, and whose files of that commit are removed by nobody but this class."""

    def __init__(self, table: Table) -> None:
        from pyiceberg.io import FileIO, InputFile, OutputFile
        from pyiceberg.table import Table as IcebergTable

        self._io = io = table.io
        self._written = written = set[str]()

        class Kept(FileIO):
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
            table.name(), metadata, table.metadata_location, Kept(io.properties), table.catalog, table.config
        )

    def remove_files(self) -> None:
        """Remove what a commit that has not landed has written."""
        for location in self._written:
            with suppress(Exception):
                self._io.delete(location)
