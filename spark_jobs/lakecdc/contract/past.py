"""Options of jobs that read a table's past: ``restore_moment``, ``scd2``, ``rebuild_keys``, ``export_changes``."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import parse_moment
from lakecdc.contract.job_options import JobOptions, check_quarantine_table
from lakecdc.metadata.names import RESERVED_REFS


@dataclass(frozen=True)
class RestoreMomentOptions(JobOptions):
    """Options of ``restore_moment``. Without ``moment`` the job changes nothing and fails.

    :param action: ``restore``, or ``drop`` to remove the moment's branch and tag from the tables.
    :param moment: ISO-8601 time at the source; everything committed up to it is restored.
    :param history_tables: history table by table.
    :param branch: branch of each table for the restored state; default: ``moment-2026-01-31T00-03-00``, the moment in
        UTC. The tag ``<branch>-as-restored`` does not move if the branch is written to.
    :param keep_for: seconds for which branch and tag are kept.
    :param into: by table, a table for the restored state instead of a branch; it is created if it does not exist, and
        replaced if it has an earlier restored state of the table.
    :param quarantine_table: as for ``ingest``.
    """

    action: Literal["restore", "drop"] = "restore"
    moment: str | None = None
    history_tables: dict[str, str] = field(default_factory=dict)
    branch: str | None = None
    keep_for: float = 30 * 24 * 3600.0
    into: dict[str, str] = field(default_factory=dict)
    quarantine_table: str | None = None

    def __post_init__(self) -> None:
        if self.moment is not None:
            parse_moment(self.moment, "options.moment")
        if self.branch is not None and (self.branch.startswith(RESERVED_REFS) or self.branch in ("", "main")):
            raise SpecError(
                f"options.branch is {self.branch!r}, which is reserved.",
                hint="Use another name, or remove it to name the branch after the moment.",
            )
        if not self.keep_for > 0:
            raise SpecError(f"options.keep_for is {self.keep_for}, not above 0 seconds.")
        if self.action == "drop" and self.into:
            raise SpecError("options.into is for restored moments.", hint="Drop that table instead.")
        if len({*self.into.values()}) < len(self.into):
            raise SpecError(
                "options.into names the same table for several tables.", hint="Name a different one for each."
            )
        check_quarantine_table(self.quarantine_table)

    def restored(self) -> tuple[datetime, str]:
        """Return the moment in UTC and the name of its branch; raise a :class:`SpecError` without a moment."""
        if not self.moment:
            raise SpecError(
                "options.moment is missing.", hint='Use an ISO-8601 time, such as "2026-01-31T00:03:00+00:00".'
            )
        moment = parse_moment(self.moment, "options.moment").astimezone(UTC)
        fraction = f"-{moment.microsecond:06d}" if moment.microsecond else ""
        return moment, self.branch or f"moment-{moment:%Y-%m-%dT%H-%M-%S}{fraction}"


@dataclass(frozen=True)
class Scd2Options(JobOptions):
    """Options of ``scd2``. Each run adds the events of the history tables since the last one.

    :param history_tables: history table by table.
    :param dimensions: by table, the table of its versions; it is created if it does not exist.
    """

    history_tables: dict[str, str] = field(default_factory=dict)
    dimensions: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class RebuildKeysOptions(JobOptions):
    """Options of ``rebuild_keys``.

    :param keys: by table, the keys of the rows to rebuild, such as ``[{"country": "DE"}]``; default: all rows.
    :param rules: by table, its columns from now on, as in ``merge.columns`` of its target; all rows are rebuilt.
    """

    keys: dict[str, tuple[dict[str, Any], ...]] = field(default_factory=dict)
    rules: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class Destination:
    """The destination of a table's changes: another table, or a folder.

    :param table: ``namespace.name`` of a table that each export appends to; it is created if it does not exist.
    :param folder: absolute path or URI of a folder in which each export creates its own.
    :param format: format of the files in the folder: ``parquet``, or ``debezium-json`` with one envelope per line.
    """

    table: str | None = None
    folder: str | None = None
    format: Literal["parquet", "debezium-json"] = "parquet"

    def __post_init__(self) -> None:
        if (self.table is None) == (self.folder is None):
            raise SpecError("A destination has either a table or a folder.", hint="Set one of the two.")
        if self.folder is not None and not (self.folder.startswith("/") or urlsplit(self.folder).scheme):
            raise SpecError(
                f"The folder {self.folder!r} of a destination is relative.", hint="Use an absolute path or a URI."
            )


@dataclass(frozen=True)
class ExportChangesOptions(JobOptions):
    """Options of ``export_changes``. Each run continues from the end of the last one, as recorded in the destination.

    :param destinations: destination by table.
    :param since: start of the first export to a destination: a snapshot id, a tag, a branch, or an ISO-8601 timestamp.
        Default: all rows of the table, as inserts.
    :param until: end of the run, in the same form; default: the newest snapshot.
    :param history_tables: by table, its history table, to export every single change instead of the net changes.
    :param consumer: name of a consumer that is registered with each table and advanced by each export, so that expiry
        keeps what is not exported yet.
    """

    destinations: dict[str, Destination] = field(default_factory=dict)
    since: str | None = None
    until: str | None = None
    history_tables: dict[str, str] = field(default_factory=dict)
    consumer: str | None = None
