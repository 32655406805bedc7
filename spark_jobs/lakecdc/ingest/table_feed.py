"""The state of one table during a run: its position, applied batches, and its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from lakecdc.contract.errors import InputError
from lakecdc.contract.feeding import FeedingOptions, IngestOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.commit import refuse_equality_deletes
from lakecdc.iceberg.table import IcebergTable, Snapshot, carrier_of, open_if_there
from lakecdc.ingest import quarantine
from lakecdc.ingest.apply.history_table import HistoryTable, open_history
from lakecdc.ingest.apply.modes import equality_delete_files
from lakecdc.ingest.apply.publish import Applied, following
from lakecdc.ingest.fold import Stats
from lakecdc.metadata import names
from lakecdc.metadata.freshness import judge_freshness
from lakecdc.metadata.positions import Carrier, Position, current_position, encode_idle
from lakecdc.metadata.readers import explain_form, find_misfit
from lakecdc.runtime.run import failure


@dataclass
class TableFeed:
    """One table's state during a run.

    :param table: None until the first batch creates it.
    :param newest: the nearest ancestor with a position of any feed; None if the table was never fed.
    :param carrier: the snapshot of this feed's last commit; None if there is none.
    :param position: the table's position, quiet stretches included.
    :param history: the table's change log, if it has one.
    :param truncated: order key of the last TRUNCATE before the table was created, if any.
    :param reloaded: the next batch replaces all rows.
    :param conversion: conversion of unexpected equality deletes before the first batch, if there were any.
    :param waits: whether its quarantine has messages; None if unknown.
    :param metrics: for the report.
    """

    target: Target
    spec: JobSpec
    table: IcebergTable | None = None
    newest: Carrier | None = None
    carrier: Carrier | None = None
    position: Position | None = None
    snapshot_before: str | None = None
    history: HistoryTable | None = None
    truncated: str | None = None
    reloaded: bool = False
    conversion: TableReport | None = None
    waits: bool | None = None
    error: Exception | None = None
    commits: int = 0
    metrics: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.target.table

    @property
    def options(self) -> FeedingOptions:
        assert isinstance(self.spec.options, FeedingOptions)
        return self.spec.options

    @property
    def existing(self) -> IcebergTable:
        """Return the table, which must exist."""
        assert self.table is not None
        return self.table

    @property
    def started_from(self) -> str | None:
        """Return the text of the positions before the next commit, for the fence."""
        return self.newest.text if self.newest else None

    @property
    def is_shared(self) -> bool:
        """Check whether other jobs feed the table too."""
        return bool(self.target.feed) or self.has_others

    @property
    def has_others(self) -> bool:
        """Check whether other jobs have committed to the table."""
        return any(each.position.feed != self.target.feed for each in (self.newest.feeds if self.newest else ()))

    def follow_others(self) -> bool:
        """Adopt the commits of the table's other feeds; return False unless only these have committed.

        Return False for a reload too, which would remove their rows.
        """
        newest = carrier_of(self.existing.refresh().ancestors())
        if self.reloaded:
            return False
        own = newest.of(self.target.feed) if newest else None
        ids = [each.snapshot_id if each else None for each in (own, self.carrier)]
        if newest is None or newest.text == self.started_from or ids[0] != ids[1]:
            return False
        self.newest, self.carrier = newest, own
        return True

    @property
    def deletes_left(self) -> int:
        """Count the equality-delete files that the table has although its target resolves deletes."""
        resolves = self.target.deletes == "resolved"
        return equality_delete_files(self.table) if resolves and self.table is not None else 0

    def add(self, **numbers: int | float) -> None:
        for key, value in numbers.items():
            self.metrics[key] = self.metrics.get(key, 0) + value

    def count_events(self, measured: Stats) -> None:
        """Add the events of a folded batch to the metrics."""
        self.add(keys=measured.keys)
        self.count_ops(measured.events)

    def count_ops(self, events: Mapping[str, int]) -> None:
        self.add(**{f"events_{op}": count for op, count in events.items()})

    @property
    def quarantine_table(self) -> str:
        return quarantine.table_name(self.options, self.name)

    def waiting(self, spark: SparkSession) -> DataFrame | None:
        """Return the table's messages in quarantine; None if there are none."""
        return quarantine.waiting(spark, self.spec.catalog.name, self.quarantine_table, self.name)

    def note(self, applied: Applied, position: Position) -> None:
        """Record a commit and the table's position after it."""
        self.newest = self.carrier = Carrier(applied.snapshot.id, position.encode())
        self.position = position
        self.reloaded = False
        self.commits += 1
        self.add(
            data_files=applied.data_files,
            delete_files=applied.delete_files,
            rows_written=applied.rows,
            bytes_written=applied.bytes,
            retries=applied.retries,
            **applied.resolved,
        )
        staged = applied.staged
        if staged.deletes_left_out is not None:
            self.add(deletes_left_out=staged.deletes_left_out)
        self.metrics.pop("deletes_kept_because", None)
        if staged.deletes_kept:
            self.metrics["deletes_kept_because"] = staged.deletes_kept
        if staged.written_by:
            self.metrics["full_load_written_by"] = staged.written_by

    def note_quiet(self, position: Position) -> None:
        """Record the position of a table without changes, without a snapshot."""
        assert self.carrier is not None and self.position is not None
        position = following(position, self.position)
        if position != self.position:
            idle = encode_idle(self.carrier.snapshot_id, position)
            self.existing.update_properties({names.of_feed(names.IDLE_POSITION, self.target.feed): idle})
            self.position = position

    def report(self) -> TableReport:
        """Return the table's part of the job's report."""
        head = self.table.head() if self.table is not None else None
        position = self.position
        self.metrics["commits"] = self.commits
        if seconds := self.metrics.get("seconds"):
            self.metrics["rows_per_second"] = round(self.metrics.get("rows_written", 0) / seconds, 1)
        if position:
            self.metrics |= {"position": position.offsets, "read_through": position.read_through}
        left = self._promise_not_kept()
        warning = "; ".join(filter(None, (self._note_readers(head) or left, self._note_freshness()))) or None
        facts: dict[str, Any] = {
            "snapshot_before": self.snapshot_before,
            "snapshot_after": str(head.id) if head else None,
            "metrics": self.metrics,
        }
        if self.error is not None:
            options = self.spec.options
            values = isinstance(options, FeedingOptions) and options.report_values
            failed = failure(self.name, self.error, values=values)
            return TableReport(**{**failed.__dict__, **facts})
        converted = self._note_conversion()
        if not self.commits and not converted:
            reason = "; ".join(filter(None, (self._why_nothing(), warning)))
            return TableReport(self.name, "nothing", reason, **facts)
        return TableReport(self.name, "done", warning, **facts)

    def _note_readers(self, head: Snapshot | None) -> str | None:
        """Report the format that the table's readers need; return a warning if the table has another one."""
        target = self.target
        if not target.readers:
            return None
        warning = None
        if self.table is not None:
            summary = head.summary if head else {}
            form, columns = (self.table.format_version, summary, target.form.deletes), self.table.schema_fields
            misfit = find_misfit(target.readers, *form, columns)
            warning = str(misfit) if misfit else None
        self.metrics["readers"] = {
            "names": [*target.readers],
            "form": str(target.form),
            "why": explain_form(target.readers, target.form, target.kinds_of_deletes),
            "warning": warning,
        }
        return warning

    def _note_freshness(self) -> str | None:
        """Report whether the table keeps its promised freshness; return a warning if it does not."""
        if self.target.freshness is None:
            return None
        # until a reload commits, readers see the earlier rows
        seen = self.position or (self.carrier.position if self.carrier else None)
        freshness = judge_freshness(self.target.freshness, seen.read_through if seen else None, datetime.now(UTC))
        self.metrics |= freshness.facts()
        return freshness.problem

    def _promise_not_kept(self) -> str | None:
        """Return a warning about equality deletes in a table whose target resolves them, or None."""
        left = self.deletes_left
        if self.target.deletes == "resolved":
            self.metrics["equality_delete_files"] = left
        if not left:
            return None
        report = self.conversion
        why = f"their conversion: {report.reason}" if report and report.reason else "the next run converts them"
        return f"{left} equality-delete files are left, and not every engine can read the table; {why}"

    def _note_conversion(self) -> int:
        """Report the equality-delete files that were converted before the first batch, and return their number."""
        metrics = self.conversion.metrics if self.conversion else {}
        before, after = (int(metrics.get(f"equality_delete_files_{when}", 0)) for when in ("before", "after"))
        if before > after:
            self.metrics["equality_delete_files_converted"] = before - after
        return max(0, before - after)

    def _why_nothing(self) -> str:
        reason = "the source has no changes for it"
        others = self.metrics.get("other_tables")
        if self.table is not None or not others:
            return reason
        return (
            f"{reason}, but for other tables: {', '.join(others)}; if one of them feeds it under another name, "
            'set it as "source_table" of the target'
        )


def open_feed(spark: SparkSession, spec: JobSpec, target: Target, refused: Exception | None) -> TableFeed:
    """Load a table's state; if it cannot be loaded or is refused, the table has failed, and the others continue."""
    feed, catalog = TableFeed(target, spec, error=refused), spec.catalog.name
    try:
        feed.table = open_if_there(spark, catalog, feed.name)
        if feed.table is not None:
            head = feed.table.head()
            feed.snapshot_before = str(head.id) if head else None
            feed.newest = carrier_of(feed.table.ancestors())
            feed.carrier = feed.newest.of(target.feed) if feed.newest else None
            feed.position = current_position(feed.carrier, feed.table.properties, target.feed)
            if target.form.deletes == "equality":
                refuse_equality_deletes(feed.table)
        feed.history = open_history(spark, catalog, target, feed.table, feed.carrier)
        if isinstance(spec.options, IngestOptions) and spec.options.reloads(feed.name):
            if feed.has_others:
                raise InputError(
                    "A reload would remove the rows of the other jobs that feed it.",
                    table=feed.name,
                    hint="Remove it from options.reload. To reload its sources, let all its jobs feed a new table.",
                )
            # the fence still compares with the table's position
            feed.position, feed.reloaded = None, feed.table is not None
    except Exception as error:
        feed.error = refused or error
    return feed
