"""Clean up the tables beside a target: rows are removed once they are not needed, never by age alone."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from lakecdc.contract.errors import LakecdcError, SpecError, UnsupportedError
from lakecdc.contract.expiring import CleanSideTablesOptions
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import ORDER_COLUMN
from lakecdc.iceberg import scratch
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.scratch import HeadMovedError
from lakecdc.iceberg.table import (
    IcebergTable,
    carrier_of,
    count_rows,
    delete_rows,
    exists,
    open_if_there,
    source_position,
)
from lakecdc.ingest.api import (
    Parking,
    chapter_links,
    count_quarantined,
    dismiss_quarantined,
    oldest_order_to_come,
    oldest_quarantined_orders,
    replaced_chapters,
    settled_rounds,
)
from lakecdc.maintain.reports import DRY_RUN, ends, seconds_since
from lakecdc.metadata import names
from lakecdc.metadata.names import quarantine_of
from lakecdc.metadata.policy import permitted_options
from lakecdc.metadata.positions import Position, decode, idle_positions
from lakecdc.runtime import failpoints
from lakecdc.sql import literal, quoted_column

JOB = "clean_side_tables"
_ATTEMPTS = 4


@dataclass
class Cleaning:
    """Cleanup of the tables beside one target.

    :param tables: all targets of the run.
    :param kept_because: reasons that rows stay, by kind.
    :param removed: number of rows removed, or to remove in a dry run.
    """

    target: IcebergTable
    tables: tuple[str, ...]
    options: CleanSideTablesOptions
    counts: dict[str, Any] = field(default_factory=dict)
    kept_because: dict[str, str] = field(default_factory=dict)
    removed: int = 0

    @property
    def has_several_feeds(self) -> bool:
        """Return whether several jobs feed the target; if so, each job's positions need rows beside it."""
        carrier = carrier_of(self.target.refresh().ancestors())
        return carrier is not None and bool(carrier.position.others)

    def positions_before(self) -> list[Position]:
        """Return the positions of all snapshots that the target can be rolled back to."""
        stored = self.target.refresh().metadata("snapshots").selectExpr(f"summary['{names.POSITIONS}'] AS text")
        return [decode(row["text"]) for row in stored.where("text IS NOT NULL").collect()]

    def beside(self, name: str) -> IcebergTable | None:
        """Load a table beside the target if it exists; refuse if its properties do not allow removals."""
        table = open_if_there(self.target.spark, self.target.catalog, name)
        if table is not None:
            own = {name: table.refresh().properties}
            permitted_options(JOB, replace(self.options, protection={}), name, own, datetime.now(UTC))
        return table

    def record(self, kind: str, before: int, removed: int, because: str, how: str = "removed") -> None:
        """Record the numbers of a kind of row, and why the rest stays."""
        self.counts |= {f"{kind}_before": before, f"{kind}_{how}": removed, f"{kind}_after": before - removed}
        self.removed += removed
        if before > removed:
            self.kept_because[kind] = because


def clean_side_tables(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Remove unneeded rows from the tables beside one target.

    :raises SpecError: ``seen_before`` is in the future, or a target to forget exists.
    :raises UnsupportedError: the table is itself one of these tables.
    """
    options = spec.options_as(CleanSideTablesOptions)
    if names.is_side_table(table.name):
        raise UnsupportedError("It is one of lakecdc's own tables.", table=table.name, hint="Name its target.")
    _refuse_options(table, options)
    started, head = time.monotonic(), table.refresh().head()
    cleaning, error = Cleaning(table, spec.tables, options), None
    try:
        for clean in _KINDS:
            clean(cleaning)
    except LakecdcError as stopped:
        error = stopped
    metrics = cleaning.counts | {"seconds": seconds_since(started)}
    if cleaning.kept_because:
        metrics["kept_because"] = cleaning.kept_because
    facts = ends(head, head) | {"metrics": metrics}
    if error:
        # the report must include earlier removals
        return TableReport.failure(table.name, error, **facts)
    if cleaning.removed and not options.dry_run:
        return TableReport(table.name, "done", **facts)
    reason = DRY_RUN if options.dry_run else "nothing beside it can be removed"
    return TableReport(table.name, "nothing", reason, **facts)


def _parked_rounds(cleaning: Cleaning) -> None:
    """Remove rounds of the log that the target has applied, or that a full load has superseded."""
    name, place = cleaning.target.name, Parking(cleaning.target.spark, cleaning.target.catalog)
    if cleaning.beside(names.parked_of(name)) is None:
        return
    by_table, failed = place.load([name])
    if name in failed:
        raise failed[name]
    parked = by_table.get(name, [])
    if not parked:
        return
    done = settled_rounds(parked, source_position(cleaning.target, feed=""))
    failpoints.reach("before_side_table_delete")
    if done and not cleaning.options.dry_run:
        place.remove(name, done)
    cleaning.record("parked_rounds", len(parked), len(done), "the table has not applied them yet")


def _remembered_deletes(cleaning: Cleaning) -> None:
    """Remove remembered deletes that are older than every event that can still arrive."""

    def settled(_: IcebergTable) -> tuple[str, dict[str, Any]] | None:
        # this order misses none: a message is quarantined before a newer delete is remembered
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
    """Remove the settled rows of a table that only this target uses; retry if ingestion adds rows meanwhile."""
    table = cleaning.beside(cleaning.target.name + suffix)
    for attempt in range(_ATTEMPTS):
        base = table.refresh().head() if table else None
        if table is None or base is None:
            return
        before, condition = count_rows(table, "true", {}), settled(table)
        count = count_rows(table, *condition) if condition else 0
        if condition and count and not cleaning.options.dry_run:
            try:
                with scratch.branch(table, base) as branch:
                    where, values = condition
                    table.spark.sql(f"DELETE FROM {scratch.sql_name(table, branch)} WHERE {where}", values)
                    failpoints.reach("before_side_table_delete")
                    scratch.publish(table, branch, base, PositionFence(None), {names.JOB: JOB})
            except HeadMovedError:
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
        if before:
            cleaning.record(kind, before, count, because)
        return


def _oldest_to_come(cleaning: Cleaning) -> str | None:
    """Return the lowest order key of events that can still arrive; None if it is not known."""
    target, options = cleaning.target, cleaning.options
    if cleaning.has_several_feeds:
        return None
    before = cleaning.positions_before()
    bounds = [oldest_order_to_come(source_position(target), before)]
    # messages may be in the named quarantine table or in the earlier default one
    for name in {quarantine_of(target.name, options.quarantine_table), quarantine_of(target.name)}:
        if (table := cleaning.beside(name)) is not None:
            bounds += oldest_quarantined_orders(table, target.name)
    known = [bound for bound in bounds if bound]
    return min(known) if len(known) == len(bounds) else None


def _files_read(cleaning: Cleaning) -> None:
    """Remove the records of read files in replaced chains; other records stay: a file without a record is new."""

    def settled(table: IcebergTable) -> tuple[str, dict[str, Any]] | None:
        if cleaning.has_several_feeds:
            return None
        # later chapters cannot be on a chain that is already replaced
        chapters, positions = chapter_links(table), cleaning.positions_before()
        # an idle position does not stop a run that started before it
        carrier, idle = carrier_of(cleaning.target.ancestors()), idle_positions(cleaning.target.properties)
        try:
            replaced = replaced_chapters(chapters, carrier.position if carrier else None, (*positions, *idle.values()))
        except KeyError:
            return None
        return (f"chapter IN ({', '.join(map(literal, sorted(replaced)))})", {}) if replaced else None

    because = "a file without a record would be read again"
    _clean_own(cleaning, "files_read", names.FILES_SUFFIX, settled, because)


def _quarantined(cleaning: Cleaning) -> None:
    """Remove dismissed messages; replays remove the messages that they apply."""
    name, options = cleaning.target.name, cleaning.options
    table = cleaning.beside(quarantine_of(name, options.quarantine_table))
    before = count_quarantined(table, name) if table else 0
    if table is None or not before:
        return
    dismissed = []
    for dismissal in (d for d in options.dismiss if d.table == name):
        failpoints.reach("before_side_table_delete")
        moment = parse_moment(dismissal.seen_before, "seen_before").isoformat()
        count = dismiss_quarantined(table, name, dismissal.rules, moment, dry_run=options.dry_run)
        dismissed.append({**dataclasses.asdict(dismissal), "messages": count})
    if dismissed:
        cleaning.counts["dismissals"] = dismissed
    # messages that arrived meanwhile are not counted
    count = min(before, sum(int(d["messages"]) for d in dismissed))
    because = "they are neither replayed nor dismissed"
    cleaning.record("quarantined", before, count, because, "dismissed")


def _of_missing_targets(cleaning: Cleaning) -> None:
    """Remove rows of missing targets from shared tables if forget_tables names them; others may still be created."""
    target, options = cleaning.target, cleaning.options
    shared: list[tuple[str, str, Callable[[str], str]]] = [
        ("quarantined", "*", lambda name: quarantine_of(name, options.quarantine_table)),
        ("parked_rounds", "DISTINCT through", names.parked_of),
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
            entry = missing.setdefault(row["target"], {"table": row["target"], "forgotten": forgotten})
            entry[kind] = int(row["number"])
    if missing:
        cleaning.counts["missing_targets"] = [missing[name] for name in sorted(missing)]
    if not all(entry["forgotten"] for entry in missing.values()):
        cleaning.kept_because["missing_targets"] = "they may still be created, unless forget_tables names them"


def _is_there(beside: IcebergTable, name: str) -> bool:
    try:
        return exists(beside.spark, beside.catalog, name)
    except LakecdcError:
        # the table exists but cannot be read
        return True


def _refuse_options(table: IcebergTable, options: CleanSideTablesOptions) -> None:
    for dismissal in options.dismiss:
        if dismissal.table == table.name and parse_moment(dismissal.seen_before, "seen_before") > datetime.now(UTC):
            raise SpecError(
                f"dismiss.seen_before {dismissal.seen_before} is in the future.",
                table=table.name,
                hint="Use a past time.",
            )
    for name in options.forget_tables:
        if _is_there(table, name):
            raise SpecError(
                f"Cannot forget the table {name}: it exists.",
                table=table.name,
                hint="Remove it from options.forget_tables, or drop it first.",
            )


# remembered deletes come before dismissals: a running replay may still apply what is dismissed
_KINDS = (_parked_rounds, _remembered_deletes, _quarantined, _files_read, _of_missing_targets)
