"""Options of ``export_changes``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from lakecdc.contract.errors import SpecError
from lakecdc.contract.job_options import JobOptions


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
