"""Tables as the Airflow side reads them: metadata through pyiceberg, never a row."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from lakecdc.contract.errors import InputError
from lakecdc.contract.fields import parse_moment
from lakecdc.metadata.exports import SOURCE as EXPORT_SOURCE
from lakecdc.metadata.last_write import SnapshotFacts
from lakecdc.metadata.names import IDLE_POSITION, READ_THROUGH
from lakecdc.metadata.positions import Carrier, Position, current_position, encode_idle, nearest_carrier

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection

log = logging.getLogger(__name__)
T = TypeVar("T")
MAIN = "main"
_THREADS = 4
_ATTEMPTS = 10


@contextmanager
def open_table(catalog: CatalogConnection, table: str) -> Iterator[Table | None]:
    """Open a table for as long as its catalog is open; yield None if there is none of that name.

    :param table: ``namespace.name``.
    """
    with closing(catalog.load()) as opened:
        yield load_table(opened, table)


def load_table(catalog: Catalog, table: str) -> Table | None:
    """Load a table, or return None if it does not exist."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None


def read_tables(
    catalog: CatalogConnection,
    tables: Sequence[str],
    read: Callable[[str, Table | None], T],
    failed: Callable[[str, Exception], T],
) -> dict[str, T]:
    """Read tables in threads, each with its own catalog client, as some clients are not thread-safe.

    :param read: gets a table by its name and itself, or None if it does not exist.
    :param failed: returns the value of a table that cannot be read; an error that it raises ends all.
    """

    def read_one(opened: Catalog, name: str) -> T:
        try:
            return read(name, load_table(opened, name))
        except Exception as error:
            # one table must not stop the others
            log.warning("Cannot read %s from this worker.", name, exc_info=True)
            return failed(name, error)

    def read_part(names: Sequence[str]) -> dict[str, T]:
        try:
            opened = catalog.load()
        except Exception as error:
            log.warning("Cannot open the catalog from this worker.", exc_info=True)
            return {name: failed(name, error) for name in names}
        with closing(opened):
            return {name: read_one(opened, name) for name in names}

    with ThreadPoolExecutor(_THREADS) as pool:
        parts = list(pool.map(read_part, [tables[number::_THREADS] for number in range(min(_THREADS, len(tables)))]))
    values = {name: value for part in parts for name, value in part.items()}
    return {name: values[name] for name in tables}


@contextmanager
def open_branch(catalog: CatalogConnection, table: str, branch: str) -> Iterator[Table | None]:
    """Open a table if it has a branch of that name; it always has ``main``, which need not have a snapshot."""
    with open_table(catalog, table) as found:
        yield found if found is not None and (branch == MAIN or branch in found.metadata.refs) else None


def branch_snapshots(table: Table, branch: str = MAIN) -> Iterator[Snapshot]:
    """Snapshots of a branch from its head towards the root, as far as metadata still holds them."""
    ref = table.metadata.refs.get(branch)
    snapshot = table.snapshot_by_id(ref.snapshot_id) if ref else None
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


def standing_position(table: Table) -> Position | None:
    """Where a table stands in its source; None if it has never been fed."""
    return current_position(_carrier(table), table.properties)


def _carrier(table: Table) -> Carrier | None:
    return nearest_carrier((s.snapshot_id, summary_of(s)) for s in branch_snapshots(table))


def read_position(catalog: CatalogConnection, table: str) -> Position | None:
    """Read where a table stands in its source; None if there is no such table, or it has never been fed."""
    with open_table(catalog, table) as found:
        return standing_position(found) if found is not None else None


def read_positions(catalog: CatalogConnection, tables: Sequence[str]) -> dict[str, Position]:
    """Read where tables stand in their source, without those that do not exist or have never been fed.

    An error of a table is raised.
    """

    def failed(_: str, error: Exception) -> None:
        raise error

    positions = read_tables(catalog, tables, lambda _, table: standing_position(table) if table else None, failed)
    return {table: position for table, position in positions.items() if position is not None}


def read_watermark(catalog: CatalogConnection, table: str) -> datetime | None:
    """Return the source time (UTC) up to which the table has every change.

    Commits without a position (maintenance) are skipped, and a rollback moves the watermark back. A position in the
    table's properties, left by a run over an idle source, counts if it continues the newest position of a snapshot.

    :param table: ``namespace.name``.
    :return: None if the table does not exist or has no position yet.
    """
    position = read_position(catalog, table)
    return parse_moment(position.read_through, READ_THROUGH) if position and position.read_through else None


def record_idle_position(catalog: CatalogConnection, table: str, before: Position, after: Position) -> bool:
    """Record how far the source of a quiet table was read, without a snapshot, as the ingest job does.

    :param before: where the table stood.
    :return: whether it stands there; False if another run has moved it on meanwhile.
    """

    def change(found: Table, transaction: Transaction) -> bool:
        carrier = _carrier(found)
        if carrier is None or current_position(carrier, found.properties) != before:
            return False
        transaction.set_properties({IDLE_POSITION: encode_idle(carrier.snapshot_id, after)})
        return True

    return before == after or commit_metadata(catalog, table, change)


def commit_metadata(catalog: CatalogConnection, table: str, change: Callable[[Table, Transaction], T]) -> T:
    """Commit a change of a table's metadata, anew while other writers come first; nothing if it changes nothing.

    :param change: adds to the transaction what it changes.
    :raises InputError: there is no such table.
    """

    def attempt() -> T:
        with open_table(catalog, table) as found:
            loaded = existing(found, table)
            transaction = loaded.transaction()
            result = change(loaded, transaction)
            transaction.commit_transaction()
            return result

    return commit_attempts(_ATTEMPTS, longest_wait=5)(attempt)


def commit_attempts(most: int, longest_wait: float, seconds: float = math.inf) -> Retrying:
    """Return a caller that repeats a commit while other writers come first, after a random time.

    :param longest_wait: seconds between two attempts.
    :param seconds: no attempt starts later than this.
    """
    from pyiceberg.exceptions import CommitFailedException

    return Retrying(
        retry=retry_if_exception_type(CommitFailedException),
        stop=stop_after_attempt(most) | stop_after_delay(seconds),
        wait=wait_random_exponential(multiplier=0.1, max=longest_wait),
        reraise=True,
    )


def existing(found: Table | None, table: str) -> Table:
    """Return a table that was opened.

    :raises InputError: there is no such table.
    """
    if found is None:
        raise InputError("There is no such table.", table=table)
    return found


def snapshot_facts(snapshot: Snapshot) -> SnapshotFacts:
    """Return a snapshot as :mod:`lakecdc.metadata` knows it."""
    operation = snapshot.summary.operation.value if snapshot.summary else None
    return SnapshotFacts(snapshot.snapshot_id, snapshot.timestamp_ms, operation, summary_of(snapshot))


def is_fed(table: Table) -> bool:
    """Tell whether ingestion has committed to a table: its snapshots say where in the source they end.

    An export of changes leaves a position of another kind.
    """
    position = standing_position(table)
    return position is not None and position.source != EXPORT_SOURCE


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return a snapshot's summary; empty if it has none."""
    return snapshot.summary.additional_properties if snapshot.summary else {}


def partition_of(file: DataFile) -> tuple[int, str]:
    """Return what tells a file's partition from all others: its partition spec and its values."""
    return file.spec_id, repr(file.partition)


def specs_by_dropped_columns(table: Table) -> set[int]:
    """Partition specs whose partition values Iceberg's writers lose (``lakecdc.iceberg.scan``)."""
    known = table.schema().field_ids
    return {
        number
        for number, spec in table.specs().items()
        for field in spec.fields
        if field.source_id not in known and str(field.transform).startswith(("identity", "truncate"))
    }
