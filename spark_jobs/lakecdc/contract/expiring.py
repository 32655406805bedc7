"""Options of the jobs that tag, expire or roll back snapshots, and of those that remove files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_least, check_zone, parse_moment
from lakecdc.contract.job_options import JobOptions, check_quarantine_table
from lakecdc.contract.protection import ApprovableOptions, RemovingOptions
from lakecdc.contract.rewriting import MaintenanceOptions
from lakecdc.metadata.names import RESERVED_REFS


@dataclass(frozen=True)
class RefChange:
    """A change of a tag or branch.

    :param action: ``create`` it, ``move`` it to another snapshot, ``fast_forward`` a branch to a descendant of its
        snapshot, or ``drop`` it.
    :param name: name of the tag or branch; ``main`` and names that begin with ``lakecdc`` are reserved, except that
        ``main`` may be fast-forwarded.
    :param kind: what to ``create``.
    :param to: a snapshot id, a tag or branch, or an ISO-8601 timestamp, which means the newest snapshot of ``main`` at
        that time; default: the head of ``main``.
    :param max_age: seconds after which expiry may drop a created or moved tag or branch; default: never.
    """

    action: Literal["create", "move", "fast_forward", "drop"]
    name: str
    kind: Literal["tag", "branch"] = "tag"
    to: str | None = None
    max_age: float | None = None

    def __post_init__(self) -> None:
        reserved = self.name.startswith(RESERVED_REFS) or (self.name == "main" and self.action != "fast_forward")
        if reserved or not self.name:
            raise SpecError(
                f"The name {self.name!r} of a tag or branch is reserved.",
                hint="Names that begin with lakecdc are reserved, and main can only be fast-forwarded.",
            )
        if self.action in ("drop", "fast_forward") and self.max_age is not None:
            raise SpecError(f"Action {self.action!r} of ref {self.name!r} does not accept max_age.")
        if self.action == "drop" and self.to is not None:
            raise SpecError(f"Action 'drop' of ref {self.name!r} does not accept a snapshot.")
        if self.max_age is not None and not self.max_age > 0:
            raise SpecError(f"max_age of {self.name!r} is {self.max_age}, not above 0 seconds.")


@dataclass(frozen=True)
class TagSnapshotsOptions(MaintenanceOptions):
    """Options of ``tag_snapshots``.

    :param days: number of past days with a tag ``lakecdc-day-2026-01-31`` on the last snapshot of ``main`` at the end
        of the day; 0 means none.
    :param months: number of past months with a tag ``lakecdc-month-2026-01``; 0 means none.
    :param zone: time zone of days and months, such as ``Europe/Berlin``.
    :param changes: further changes of tags and branches, in one atomic commit with the rest.
    """

    days: int = 7
    months: int = 0
    zone: str = "UTC"
    changes: tuple[RefChange, ...] = ()

    def __post_init__(self) -> None:
        check_least(self, "options", days=0, months=0)
        check_zone(self.zone, "options.zone")
        twice = [name for name, n in Counter(change.name for change in self.changes).items() if n > 1]
        if twice:
            raise SpecError(f"options.changes names {twice[0]!r} more than once.")


@dataclass(frozen=True)
class ExpireSnapshotsOptions(RemovingOptions, MaintenanceOptions):
    """Options of ``expire_snapshots``.

    :param older_than: ISO-8601 timestamp; older snapshots expire. Default: ``max_age`` before now.
    :param max_age: seconds; used without ``older_than``.
    :param retain_last: number of the newest snapshots of the main branch that never expire.
    """

    older_than: str | None = None
    max_age: float = 5 * 24 * 3600.0
    retain_last: int = 5


@dataclass(frozen=True)
class RollbackTablesOptions(JobOptions):
    """Options of ``rollback_tables``. Without ``to`` the job changes nothing and fails.

    :param to: a snapshot id, a tag, a branch, or an ISO-8601 timestamp, which means the newest snapshot of ``main`` at
        that time.
    :param history_tables: history table by table; it is rolled back to the matching state.
    :param keep_for: seconds for which a tag keeps the undone state.
    :param expired_rows: roll back even beyond a removal of old rows, which restores them.
    """

    to: str | None = None
    history_tables: dict[str, str] = field(default_factory=dict)
    keep_for: float = 30 * 24 * 3600.0
    expired_rows: bool = False

    def __post_init__(self) -> None:
        if not self.keep_for > 0:
            raise SpecError(f"options.keep_for is {self.keep_for}, not above 0 seconds.")


@dataclass(frozen=True)
class ExpirePartitionsOptions(ApprovableOptions, RemovingOptions):
    """Options of ``expire_partitions``. Without a column and an age the job changes nothing and fails.

    :param time_column: date or timestamp column that decides which rows are old.
    :param max_age: seconds; rows from before the last midnight (UTC) of that age are removed. 0 means no age.
    :param older_than: ISO-8601 timestamp; older rows are removed. Replaces ``max_age``.
    :param max_partitions: maximum of partitions to remove per run, the oldest first: values of the partition field on
        the column, regardless of other fields, or days if there is none.
    :param allow_row_deletes: remove rows also from files that have younger rows too, by Spark's ``DELETE``, which reads
        these files, and rewrites them unless the table's ``write.delete.mode`` is ``merge-on-read``.
    """

    time_column: str | None = None
    max_age: float = 0.0
    older_than: str | None = None
    max_partitions: int = 100
    allow_row_deletes: bool = False

    def __post_init__(self) -> None:
        check_least(self, "options", max_age=0, max_partitions=1)
        if self.max_age and self.older_than is not None:
            raise SpecError("options.max_age and options.older_than are both set.", hint="Remove one of them.")
        if self.older_than is not None:
            parse_moment(self.older_than, "options.older_than")


@dataclass(frozen=True)
class Dismissal:
    """A dismissal of quarantined messages, which are then not replayed.

    :param table: the target, ``namespace.name``.
    :param seen_before: ISO-8601 timestamp; only messages first seen before it are dismissed, so that unseen messages
        stay.
    :param because: the reason; the report shows it.
    :param rules: only messages that broke one of these rules, such as ``type``; default: all.
    """

    table: str
    seen_before: str
    because: str
    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        parse_moment(self.seen_before, f"seen_before of the dismissal for {self.table!r}")
        if not self.because.strip():
            raise SpecError(
                f"The dismissal for {self.table!r} has no reason.",
                hint="Set because to the reason; the report shows it.",
            )


@dataclass(frozen=True)
class CleanSideTablesOptions(RemovingOptions):
    """Options of ``clean_side_tables``.

    :param quarantine_table: as for ``ingest``.
    :param dismiss: quarantined messages to drop without a replay; only for tables that the run cleans.
    :param forget_tables: former targets, whose rows are removed from the side tables that they shared with others.
    """

    quarantine_table: str | None = None
    dismiss: tuple[Dismissal, ...] = ()
    forget_tables: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_quarantine_table(self.quarantine_table)


#: seconds; writers of other engines may stage files long before their commit, and clocks differ
_YOUNGEST_ORPHAN = 3 * 24 * 3600.0
_SHORTEST_DELAY = 24 * 3600.0


@dataclass(frozen=True)
class RemoveOrphanFilesOptions(ApprovableOptions, RemovingOptions, MaintenanceOptions):
    """Options of ``remove_orphan_files``. A dry run by default: only ``"dry_run": false`` changes anything.

    :param dry_run: find and count, change nothing, regardless of the action.
    :param action: ``remove`` removes orphan files reversibly, and deletes those that earlier runs removed; ``purge``
        only deletes these; ``restore`` brings them back unless they are deleted.
    :param min_age: seconds since a file was written before it can be an orphan; at least three days.
    :param longest_job: duration in seconds of the longest job that writes to the tables; files younger than twice that
        are skipped too.
    :param delay: seconds between removal and deletion; at least a day.
    :param run: id of a single run to restore or purge, from its report; default: all.
    """

    dry_run: bool = True
    action: Literal["remove", "restore", "purge"] = "remove"
    min_age: float = _YOUNGEST_ORPHAN
    longest_job: float = 24 * 3600.0
    delay: float = 7 * 24 * 3600.0
    run: str | None = None

    def __post_init__(self) -> None:
        if not self.min_age >= _YOUNGEST_ORPHAN:
            raise SpecError(
                f"options.min_age is {self.min_age}, less than {_YOUNGEST_ORPHAN:.0f} seconds, three days.",
                hint="Use a longer age: younger files may belong to writers that have not committed yet.",
            )
        if not self.delay >= _SHORTEST_DELAY:
            raise SpecError(f"options.delay is {self.delay}, less than {_SHORTEST_DELAY:.0f} seconds, a day.")
        check_least(self, "options", longest_job=0)
        if self.run and self.action == "remove":
            raise SpecError("options.run is for restore and purge, but options.action is 'remove'.")
        if self.approved is not None and self.action == "restore":
            raise SpecError("options.approved is for removals, but options.action is 'restore'.")

    def seconds_kept(self) -> float:
        """Return the age below which files are kept."""
        return max(self.min_age, 2 * self.longest_job)


@dataclass(frozen=True)
class EraseRowsOptions(ApprovableOptions, JobOptions):
    """Options of ``erase_rows``. One of the first three selects the rows; without one the job fails.

    No option contains key values.

    :param keys_table: ``namespace.name`` of a table with the keys, in columns named as the table's key columns.
    :param keys_uri: URI of a file or folder with the keys: ``.parquet``, ``.csv`` with a header, or ``.json``.
    :param condition: SQL over columns outside of the key; it selects the keys of matching rows in the table or its
        history table.
    :param history_tables: history table by table.
    :param further_tables: by table, others with the same key columns, such as exported changes and dimensions.
    :param quarantine_table: as for ``ingest``.
    :param documents_uri: folder of the jobs' specs and reports, which are searched for the keys too.
    :param drop_refs: tags and branches that may be dropped because they keep rows, as names or patterns such as
        ``lakecdc-day-*``.
    :param drop_consumers: consumers that may lose their position, as names or patterns.
    """

    keys_table: str | None = None
    keys_uri: str | None = None
    condition: str | None = None
    history_tables: dict[str, str] = field(default_factory=dict)
    further_tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    quarantine_table: str | None = None
    documents_uri: str | None = None
    drop_refs: tuple[str, ...] = ()
    drop_consumers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = {"keys_table": self.keys_table, "keys_uri": self.keys_uri, "condition": self.condition}
        given = [name for name, value in named.items() if value]
        if len(given) > 1:
            raise SpecError(
                f"options.{' and options.'.join(given)} are set together.", hint="Set one to select the rows."
            )
        check_quarantine_table(self.quarantine_table)

    def refuse_key_in_condition(self, key: Sequence[str], table: str) -> None:
        """Raise a :class:`SpecError` if the condition uses a key column, since a spec must not contain key values."""
        words = {word.lower() for word in re.findall(r"\w+", self.condition or "")}
        if used := [column for column in key if column.lower() in words]:
            raise SpecError(
                f"options.condition uses {used[0]!r}, which is part of the key.",
                table=table,
                hint="Use options.keys_table or options.keys_uri, so that no spec or log contains keys.",
            )
