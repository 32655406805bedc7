"""Tables as the Airflow side reads them: metadata through pyiceberg, never a row."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from lakecdc.contract.errors import InputError, UnsupportedError
from lakecdc.contract.fields import parse_moment
from lakecdc.metadata import names
from lakecdc.metadata.exports import SOURCE as EXPORT_SOURCE
from lakecdc.metadata.last_write import SnapshotFacts
from lakecdc.metadata.names import READ_THROUGH
from lakecdc.metadata.positions import Carrier, Position, current_position, encode_idle, nearest_carrier

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from lakecdc.contract.rewriting import SortDataFilesOptions

log = logging.getLogger(__name__)
T = TypeVar("T")
MAIN = "main"
_THREADS = 4
# pydantic's words: pyiceberg has one model of metadata for each format version
_UNKNOWN_VERSION = re.compile(r"Input tag '(\d+)' found using 'format_version'")
_ATTEMPTS = 10


@contextmanager
def open_table(catalog: CatalogConnection, table: str) -> Iterator[Table | None]:
    """Open a table, ``namespace.name``, for as long as its catalog is open; yield None if it does not exist."""
    with closing(catalog.load()) as opened:
        yield load_table(opened, table)


def load_table(catalog: Catalog, table: str) -> Table | None:
    """Load a table, or return None if it does not exist.

    :raises UnsupportedError: it has a format version that pyiceberg cannot read.
    """
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(table)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:
        if (unknown := _UNKNOWN_VERSION.search(str(error))) is None:
            raise
        raise UnsupportedError(
            f"PyIceberg, which Airflow's workers read metadata with, cannot read format version {unknown[1]}.",
            table=table,
            hint="Spark jobs still work on it; its health is not measured.",
        ) from error


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


def branch_snapshots(table: Table, branch: str = MAIN) -> Iterator[Snapshot]:
    """Yield the snapshots of a branch from its head towards the root, as far as metadata still holds them."""
    ref = table.metadata.refs.get(branch)
    snapshot = table.snapshot_by_id(ref.snapshot_id) if ref else None
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


def source_position(table: Table, feed: str | None = None) -> Position | None:
    """Return a table's position in its source, or in one feed's source; None if it was never fed."""
    return current_position(_carrier(table), table.properties, feed)


def position_in(table: Table, source: str) -> Position | None:
    """Return a table's position in its source; of several sources, in the one of a type, or None.

    :raises InputError: several jobs feed it from such sources.
    """
    carrier = _carrier(table)
    if carrier is None or not (carrier.position.feed or carrier.position.others):
        return source_position(table)
    feeds = [each.position.feed for each in carrier.feeds if each.position.source == source]
    if len(feeds) > 1:
        raise InputError(f"{len(feeds)} of the jobs that feed it have a source of type {source!r}.")
    return source_position(table, feeds[0]) if feeds else None


def _carrier(table: Table) -> Carrier | None:
    return nearest_carrier((s.snapshot_id, summary_of(s)) for s in branch_snapshots(table))


def read_positions(catalog: CatalogConnection, feeds: Mapping[str, str]) -> dict[str, Position]:
    """Read the positions of fed tables in their source; raise a table's error.

    :param feeds: by table, the feed to read the position of.
    """

    def failed(_: str, error: Exception) -> None:
        raise error

    def position(name: str, table: Table | None) -> Position | None:
        return source_position(table, feeds[name]) if table else None

    positions = read_tables(catalog, [*feeds], position, failed)
    return {table: position for table, position in positions.items() if position is not None}


def read_watermark(catalog: CatalogConnection, table: str) -> datetime | None:
    """Return the source time (UTC) up to which the table has every change; None if it was never fed.

    Commits without a position (maintenance) are skipped, and a rollback moves the watermark back. A position in the
    table's properties, left by a run over an idle source, counts if it continues the newest position of a snapshot.
    """
    with open_table(catalog, table) as loaded:
        position = source_position(loaded) if loaded is not None else None
    return parse_moment(position.read_through, READ_THROUGH) if position and position.read_through else None


def record_idle_position(catalog: CatalogConnection, table: str, before: Position, after: Position) -> bool:
    """Record how far the source of a quiet table was read; return False if another run has moved its position."""

    def change(loaded: Table, transaction: Transaction) -> bool:
        newest = _carrier(loaded)
        carrier = newest.of(before.feed) if newest else None
        if carrier is None or current_position(carrier, loaded.properties, before.feed) != before:
            return False
        idle = encode_idle(carrier.snapshot_id, after)
        transaction.set_properties({names.of_feed(names.IDLE_POSITION, before.feed): idle})
        return True

    return before == after or commit_metadata(catalog, table, change)


def commit_metadata(catalog: CatalogConnection, table: str, change: Callable[[Table, Transaction], T]) -> T:
    """Commit a change of a table's metadata, retrying while other writers are faster; skip a change without effect.

    :param change: adds its changes to the transaction.
    :raises InputError: the table does not exist.
    """

    def attempt() -> T:
        with open_table(catalog, table) as opened:
            loaded = existing(opened, table)
            transaction = loaded.transaction()
            result = change(loaded, transaction)
            transaction.commit_transaction()
            return result

    return commit_attempts(_ATTEMPTS, longest_wait=5)(attempt)


def commit_attempts(most: int, longest_wait: float, seconds: float = math.inf) -> Retrying:
    """Return a caller that repeats a commit after random times while other writers are faster.

    :param seconds: no attempt starts later than this.
    """
    from pyiceberg.exceptions import CommitFailedException

    return Retrying(
        retry=retry_if_exception_type(CommitFailedException),
        stop=stop_after_attempt(most) | stop_after_delay(seconds),
        wait=wait_random_exponential(multiplier=0.1, max=longest_wait),
        reraise=True,
    )


def existing(opened: Table | None, table: str) -> Table:
    """Return a table that was opened.

    :raises InputError: it does not exist.
    """
    if opened is None:
        raise InputError("The table does not exist.", table=table)
    return opened


def snapshot_facts(snapshot: Snapshot) -> SnapshotFacts:
    """Convert a snapshot to the form of :mod:`lakecdc.metadata`."""
    operation = snapshot.summary.operation.value if snapshot.summary else None
    return SnapshotFacts(snapshot.snapshot_id, snapshot.timestamp_ms, operation, summary_of(snapshot))


def is_fed(table: Table) -> bool:
    """Check whether ingestion has committed to a table; an export of changes leaves a position of another kind."""
    position = source_position(table)
    return position is not None and position.source != EXPORT_SOURCE


def is_kept_fresh(table: Table) -> bool:
    """Check whether ingestion feeds a table or aggregates it from its history table, unlike a copy or an export."""
    return is_fed(table) or names.AGGREGATED in table.properties


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return a snapshot's summary; empty if it has none."""
    return snapshot.summary.additional_properties if snapshot.summary else {}


def partition_of(file: DataFile) -> tuple[int, str]:
    """Return partition spec and values of a file, as JSON by position, which identify its partition."""
    values = {number: file.partition[number] for number in range(len(file.partition))}
    return file.spec_id, json.dumps(values, default=repr)


def specs_by_dropped_columns(table: Table) -> set[int]:
    """Return the partition specs whose partition values Iceberg's writers lose (``lakecdc.iceberg.scan``)."""
    known = table.schema().field_ids
    return {
        number
        for number, spec in table.specs().items()
        for field in spec.fields
        if field.source_id not in known and str(field.transform).startswith(("identity", "truncate"))
    }


def sorted_columns(table: Table, options: SortDataFilesOptions) -> list[int] | None:
    """Return the field ids of the columns that ``sort_data_files`` sorts by; see ``lakecdc.iceberg.sort_order``.

    :return: empty if there is nothing to sort by; None if the order is a curve, has transforms or a missing column.
    """
    schema = table.schema()
    if options.columns:
        known = set(options.columns) <= set(schema.column_names)
        column_ids = [schema.find_field(name).field_id for name in options.columns] if known else None
        curve: str = options.curve or "linear"
    else:
        column_ids, recorded = _clustering(table)
        curve = options.curve or recorded
    return column_ids if curve == "linear" or not column_ids else None


def _clustering(table: Table) -> tuple[list[int] | None, str]:
    """Return columns and curve of the table's last sort, else its sort order, else its identifier fields."""
    schema, own = table.schema(), table.sort_order()
    recorded = json.loads(table.properties.get(names.SORTED_LAYOUT, "{}"))
    fields = recorded.get("fields")
    if fields and recorded["table_order"] == own.order_id and set(fields) <= set(schema.field_ids):
        return list(fields), recorded.get("curve", "linear")
    if any(str(field.transform) != "identity" for field in own.fields):
        return None, "linear"
    key = [field.field_id for field in schema.fields if field.field_id in schema.identifier_field_ids]
    return [field.source_id for field in own.fields] or key, "linear"
