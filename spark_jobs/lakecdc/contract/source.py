"""The ``source`` part of an ingest spec: where changes come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from lakecdc.contract import fields
from lakecdc.contract.errors import SpecError
from lakecdc.contract.target import Target


@dataclass(frozen=True)
class FilesSource:
    """Change events in files, each file read once per table.

    :param path: a path, glob or URI, or a list of them.
    :param format: name of the event format.
    :param records: ``value`` when a line is one event, ``kafka`` when a line is a dumped Kafka record
        (``topic, partition, offset, timestamp, key, value, headers``).
    :param max_files_per_run: bound on new files that one run takes up, in order of their names; 0 is no bound.
    """

    path: str | tuple[str, ...]
    format: Literal["debezium-json"]
    type: Literal["files"] = "files"
    records: Literal["value", "kafka"] = "value"
    max_files_per_run: int = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths as a tuple."""
        return (self.path,) if isinstance(self.path, str) else self.path


@dataclass(frozen=True)
class PostgresSource:
    """A Postgres database: a full load of each table, then its log through one replication slot.

    :param dsn: libpq connection string or URI, without the password.
    :param password: a secret reference; default: none (trust, peer, ``~/.pgpass``).
    :param slot: name of the logical replication slot, one per group of tables that is ingested together.
    :param publication: name of the publication; default: the slot's name.
    :param create: make publication and slot when no table has a position yet.
    :param full_load_parallelism: how many chunks are read at once.
    :param chunk_bytes: heap bytes per full-load chunk.
    :param max_batch_events: log events per micro-batch (a transaction is never cut).
    :param max_slot_lag_bytes: log held back by the slot above which a failing table is given up; 0 is no limit.
    """

    dsn: str
    slot: str
    type: Literal["postgres"] = "postgres"
    password: Any = None
    publication: str | None = None
    create: bool = True
    full_load_parallelism: int = 4
    chunk_bytes: int = 64 * 1024 * 1024
    max_batch_events: int = 500_000
    max_slot_lag_bytes: int = 0

    @property
    def publication_name(self) -> str:
        """The publication's name."""
        return self.publication or self.slot


Source = FilesSource | PostgresSource
_TYPES: dict[str, type[FilesSource] | type[PostgresSource]] = {"files": FilesSource, "postgres": PostgresSource}


def parse_source(document: Any, targets: tuple[Target, ...]) -> Source:
    """Check the spec's ``source``.

    :param targets: the tables it is to feed.
    :raises SpecError: an unknown type, or a target that this source cannot feed.
    """
    if not isinstance(document, Mapping):
        raise SpecError("source must be an object.")
    kind = document.get("type")
    if kind not in _TYPES:
        raise SpecError(f"source.type is {kind!r}.", hint=f"It must be one of {', '.join(_TYPES)}.")
    source = fields.parse(_TYPES[kind], document, "source")
    if isinstance(source, FilesSource):
        for target in targets:
            if not target.key:
                raise SpecError(
                    "No key is given, and event files do not tell one.",
                    table=target.table,
                    hint='Add "key": ["column", …] to its target.',
                )
    return source
