"""Cleaning the tables beside a target: each row goes once nobody can need it any more, and never by its age alone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import LakecdcError, SpecError, UnsupportedError
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.options import CleanSideTablesOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg import scratch
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.row_deletes import count_rows, delete_rows
from lakecdc.iceberg.scratch import HeadMovedError
from lakecdc.iceberg.table import IcebergTable, carrier_of, exists, open_if_there
from lakecdc.ingest import quarantine, tombstones
from lakecdc.ingest.sources import file_memory
from lakecdc.ingest.sources.log import parking
from lakecdc.metadata import names
from lakecdc.metadata.names import quarantine_of
from lakecdc.metadata.policy import permitted
from lakecdc.metadata.positions import Carrier, Position, current_position, decode, idle_position
from lakecdc.runtime import failpoints
from lakecdc.sql import literal, quoted_column

if TYPE_CHECKING:
    from lakecdc.contract.spec import JobSpec
    from lakecdc.iceberg.table import Snapshot

JOB = "clean_side_tables"
_ATTEMPTS = 4


@dataclass
class Cleaning:
    """The cleaning of the tables beside one target.

    :param target: the table that is fed.
    :param tables: all that the run cleans.
    :param counts: for the report.
    :param kept_because: by kind of row, why some stay.
    :param removed: rows that have gone, or would in a dry run.
    """

    target: IcebergTable
    tables: tuple[str, ...]
    options: CleanSideTablesOptions
    counts: dict[str, Any] = field(default_factory=dict)
    kept_because: dict[str, str] = field(default_factory=dict)
    removed: int = 0

    @property
    def carrier(self) -> Carrier | None:
        """The newest snapshot of the target that carries a position."""
        return carrier_of(self.target.ancestors())

    @property
    def position(self) -> Position | None:
        """Where the target stands in its source."""
        return current_position(self.carrier, self.target.properties)

    def positions_before(self) -> list[Position]:
        """Positions of all snapshots of the target, to which it can be rolled back."""
        stored = self.target.refresh().metadata("snapshots").selectExpr(f"summary['{names.POSITIONS}'] AS text")
        return [decode(row["text"]) for row in stored.where("text IS NOT NULL").collect()]

    def beside(self, name: str) -> IcebergTable | None:
        """Load a table beside the target; None if there is none.

        :raises UnsupportedError: its own properties do not allow that something is removed from it.
        """
        table = open_if_there(self.target.spark, self.target.catalog, name)
        if table is not None:
            own = {name: table.refresh().properties}
            permitted(JOB, replace(self.options, protection={}), name, own, datetime.now(UTC))
        return table

    def tell(self, kind: str, before: int, removed: int, because: str, how: str = "removed") -> None:
        """Note what was there of a kind and what has gone.

        :param because: why the rest stays.
        :param how: it has gone.
        """
        self.counts |= {f"{kind}_before": before, f"{kind}_{how}": removed, f"{kind}_after": before - removed}
        self.removed += removed
        if before > removed:
            self.kept_because[kind] = because


def clean_side_tables(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Remove what nobody needs from the tables beside one target.

    :raises SpecError: messages are to be dismissed that nobody can have seen yet, or a target forgotten that is there.
    :raises UnsupportedError: the table is one of those itself.
    """
    options = spec.options
    assert isinstance(options, CleanSideTablesOptions)
    if names.is_side_table(table.name):
        raise UnsupportedError(
            "It is one of lakecdc's own tables.", table=table.name, hint="Name the target that it stands beside."
        )
    _refuse_unseen(options, table.name)
    _refuse_existing(table, options)
    started, head = time.monotonic(), table.refresh().head()
    at = str(head.id) if head else None
    cleaning, error = Cleaning(table, spec.tables, options), None
    try:
        for clean in _KINDS:
            clean(cleaning)
    except LakecdcError as stopped:
        error = stopped
    metrics = cleaning.counts | {"seconds": round(time.monotonic() - started, 3)}
    if cleaning.kept_because:
        metrics["kept_because"] = cleaning.kept_because
    facts: dict[str, Any] = {"snapshot_before": at, "snapshot_after": at, "metrics": metrics}
    if error:
        # what went before it has gone
        return TableReport.failure(table.name, error, **facts)
    if cleaning.removed and not options.dry_run:
        return TableReport(table.name, "done", **facts)
    reason = "dry run: nothing was changed" if options.dry_run else "nothing beside it can go"
    return TableReport(table.name, "nothing", reason, **facts)


def _parked_rounds(cleaning: Cleaning) -> None:
    """Rounds of the log that the target has taken, or that a full load has made void."""
    name, place = cleaning.target.name, parking.Parking(cleaning.target.spark, cleaning.target.catalog)
    if cleaning.beside(parking.table_name(name)) is None:
        return
    found, failed = place.load([name])
    if name in failed:
        raise failed[name]
    parked = found.get(name, [])
    if not parked:
        return
    done = parking.settled(parked, cleaning.position)
    failpoints.reach("before_side_table_delete")
    if done and not cleaning.options.dry_run:
        place.remove(name, done)
    cleaning.tell("parked_rounds", len(parked), len(done), "the table has not taken them yet")


def _remembered_deletes(cleaning: Cleaning) -> None:
    """Deletes that every event which can still come is newer than."""

    def settled(_: IcebergTable) -> tuple[str, dict[str, Any]] | None:
        # a message is quarantined before a delete that is newer is remembered, so that this order misses none
        bound = _oldest_to_come(cleaning)
        return (f"{quoted_column(ORDER_COLUMN)} < :bound", {"bound": bound}) if bound else None

    because = "the source, or the quarantine, may have older events"
    _clean_own(cleaning, "remembered_deletes", names.DELETES_SUFFIX, settled, because)


def _clean_own(
    cleaning: Cleaning,
    kind: str,
    suffix: str,
    settled: Callable[[IcebergTable], tuple[str, dict[str, Any]] | None],
    because: str,
) -> None:
    """Remove rows of a table that is the target's alone, unless ingestion adds some meanwhile: then look again.

    :param settled: which rows nobody needs, as for :func:`count_rows`; None if that cannot be told.
    :param because: why the rest stays.
    """
    table = cleaning.beside(cleaning.target.name + suffix)
    for attempt in range(_ATTEMPTS):
        base = table.refresh().head() if table else None
        if table is None or base is None:
            return
        before, found = count_rows(table, "true", {}), settled(table)
        count = count_rows(table, *found) if found else 0
        if found and count and not cleaning.options.dry_run:
            try:
                _delete_as_of(table, base, *found)
            except HeadMovedError:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
        if before:
            cleaning.tell(kind, before, count, because)
        return


def _oldest_to_come(cleaning: Cleaning) -> str | None:
    """Order key that no event lies below which can still come; None if that cannot be told."""
    target, options = cleaning.target, cleaning.options
    before = cleaning.positions_before()
    bounds = [tombstones.oldest_to_come(cleaning.position, before)]
    # messages may wait in the one that is named now, or in that of before there was a name
    for name in {quarantine_of(target.name, options.quarantine_table), quarantine_of(target.name)}:
        if (table := cleaning.beside(name)) is not None:
            bounds += quarantine.oldest_orders(table, target.name)
    told = [bound for bound in bounds if bound]
    return min(told) if len(told) == len(bounds) else None


def _delete_as_of(table: IcebergTable, base: Snapshot, where: str, values: dict[str, Any]) -> None:
    """Delete rows of a snapshot, unless another one has come by then.

    :raises HeadMovedError: it has.
    """
    with scratch.branch(table, base) as branch:
        name = scratch.sql_name(table, branch)
        table.spark.sql(f"DELETE FROM {name} WHERE {where}", values)
        failpoints.reach("before_side_table_delete")
        scratch.publish(table, branch, base, PositionFence(None), {names.JOB: JOB})


def _files_read(cleaning: Cleaning) -> None:
    """Files that have been read, of chains that ingestion has begun anew without files that are gone.

    All others stay: a file is new unless it is among them.
    """

    def settled(table: IcebergTable) -> tuple[str, dict[str, Any]] | None:
        # what is written later is on no chain that has been replaced by then
        chapters, stood_on = file_memory.links(table), cleaning.positions_before()
        idle = idle_position(cleaning.target.properties)
        newest = [file_memory.newest_chapter(found) for found in (*stood_on, idle)]
        # a quiet stretch is not what holds off a run that began before it
        carrier = cleaning.carrier
        current = file_memory.newest_chapter(carrier.position if carrier else None)
        try:
            gone = file_memory.replaced(chapters, current, newest)
        except KeyError:
            return None
        return (f"chapter IN ({', '.join(map(literal, sorted(gone)))})", {}) if gone else None

    because = "a file that is forgotten would be read again"
    _clean_own(cleaning, "files_read", names.FILES_SUFFIX, settled, because)


def _quarantined(cleaning: Cleaning) -> None:
    """Messages that a person has dismissed; a replay lets go by itself of what it has applied."""
    name, options = cleaning.target.name, cleaning.options
    table = cleaning.beside(quarantine_of(name, options.quarantine_table))
    before = quarantine.count(table, name) if table else 0
    if table is None or not before:
        return
    dismissed = []
    for told in (d for d in options.dismiss if d.table == name):
        failpoints.reach("before_side_table_delete")
        moment = parse_moment(told.seen_before, "seen_before").isoformat()
        count = quarantine.dismiss(table, name, told.rules, moment, dry_run=options.dry_run)
        dismissed.append({**dataclasses.asdict(told), "messages": count})
    if dismissed:
        cleaning.counts["dismissals"] = dismissed
    # what came meanwhile is not counted
    count = min(before, sum(int(d["messages"]) for d in dismissed))
    because = "they are neither replayed nor dismissed by a person"
    cleaning.tell("quarantined", before, count, because, "dismissed")


def _of_missing_targets(cleaning: Cleaning) -> None:
    """Rows of targets that exist no more, in tables that several share: told once, with the first target that shares.

    Nobody but a person can tell a table that was dropped from one that is to be made once its messages can be read.
    """
    target, options = cleaning.target, cleaning.options
    shared: list[tuple[str, str, Callable[[str], str]]] = [
        ("quarantined", "*", lambda name: quarantine_of(name, options.quarantine_table)),
        ("parked_rounds", "DISTINCT through", parking.table_name),
    ]
    missing: dict[str, dict[str, Any]] = {}
    for kind, counted, of in shared:
        name = of(target.name)
        if target.name != next(other for other in cleaning.tables if of(other) == name):
            continue
        if (table := cleaning.beside(name)) is None:
            continue
        statement = f"SELECT target, count({counted}) AS number FROM {table.sql_name} GROUP BY target"
        for row in table.spark.sql(statement).collect():
            if row["target"] in cleaning.tables or _is_there(target, row["target"]):
                continue
            forgotten = row["target"] in options.forget_tables
            if forgotten and not options.dry_run:
                failpoints.reach("before_side_table_delete")
                delete_rows(table, "target = :target", {"target": row["target"]})
            cleaning.removed += int(row["number"]) if forgotten else 0
            told = missing.setdefault(row["target"], {"table": row["target"], "forgotten": forgotten})
            told[kind] = int(row["number"])
    if missing:
        cleaning.counts["missing_targets"] = [missing[name] for name in sorted(missing)]
    if not all(told["forgotten"] for told in missing.values()):
        cleaning.kept_because["missing_targets"] = "they may be made yet, unless forget_tables names them"


def _is_there(beside: IcebergTable, name: str) -> bool:
    try:
        return exists(beside.spark, beside.catalog, name)
    except LakecdcError:
        # it is, and cannot be read
        return True


def _refuse_existing(table: IcebergTable, options: CleanSideTablesOptions) -> None:
    for name in options.forget_tables:
        if _is_there(table, name):
            raise SpecError(
                f"The table {name} is to be forgotten, and it exists.",
                table=table.name,
                hint="Take it out of options.forget_tables, or drop it first.",
            )


def _refuse_unseen(options: CleanSideTablesOptions, table: str) -> None:
    now = datetime.now(UTC)
    for told in options.dismiss:
        if told.table == table and parse_moment(told.seen_before, "seen_before") > now:
            raise SpecError(
                f"Messages seen before {told.seen_before} are to be dismissed, which is yet to come.",
                table=table,
                hint="Dismiss what has been looked at; later messages need a word of their own.",
            )


# remembered deletes come before the dismissals: a replay that has begun may still enter what these let go
_KINDS: tuple[Callable[[Cleaning], None], ...] = (
    *(_parked_rounds, _remembered_deletes, _quarantined, _files_read),
    _of_missing_targets,
)
