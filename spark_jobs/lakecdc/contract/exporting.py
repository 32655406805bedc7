"""The options of ``export_changes``: which changes go where."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from lakecdc.contract.errors import SpecError
from lakecdc.contract.job_options import JobOptions


@dataclass(frozen=True)
class Destination:
    """Where the changes of a table go: to another table, or to a folder.

    :param table: ``namespace.name`` of a table that each export appends to; it is created if it does not exist.
    :param folder: absolute path or URI of a folder in which each export makes one of its own.
    :param format: of the files in the folder: ``parquet``, or ``debezium-json``, one envelope a line.
    """

    table: str | None = None
    folder: str | None = None
    format: Literal["parquet", "debezium-json"] = "parquet"

    def __post_init__(self) -> None:
        if (self.table is None) == (self.folder is None):
            raise SpecError("A destination of changes is either a table or a folder.", hint="Give it one of the two.")
        if self.folder is not None and not (self.folder.startswith("/") or urlsplit(self.folder).scheme):
            raise SpecError(
                f"The folder {self.folder!r} of a destination is relative.", hint="Give an absolute path or a URI."
            )


@dataclass(frozen=True)
class ExportChangesOptions(JobOptions):
    """Options of ``export_changes``. Each run goes on from where the last one has ended, as the destination tells.

    :param destinations: by table, where its changes go.
    :param since: where a destination without exports begins: the id of a snapshot, a tag, a branch, or an ISO-8601
        moment. Default: with all rows of the table, as inserts.
    :param until: the same, how far the run goes; default: the newest snapshot.
    :param history_tables: by table, its history table, where every step is to be exported and not what the steps come
        to.
    :param consumer: name of a consumer that is registered with each table and moved on with each export, so that
        expiry keeps what is not exported yet.
    """

    destinations: dict[str, Destination] = field(default_factory=dict)
    since: str | None = None
    until: str | None = None
    history_tables: dict[str, str] = field(default_factory=dict)
    consumer: str | None = None
