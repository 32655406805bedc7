"""Change events or rows in files: each file is read once per table, in order of the files' names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.files import FilesSource
from lakecdc.ingest.batch import Batch, SourceFacts
from lakecdc.ingest.change import Column
from lakecdc.ingest.engine.decode import decode
from lakecdc.ingest.engine.pieces import Lines, long_line
from lakecdc.ingest.engine.record_task import RowReading
from lakecdc.ingest.engine.records import decode_cells
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.messages import from_dumped_records, from_values
from lakecdc.ingest.sources.avro_files import container_messages
from lakecdc.ingest.sources.file_batches import Queue, sizes
from lakecdc.ingest.sources.file_memory import Memory, Shown, extended, fingerprint, recall, write
from lakecdc.ingest.sources.file_records import cells_of_files, lines, list_files, scan_of_lines
from lakecdc.ingest.sources.message_batches import known_of, table_batch, with_read_through
from lakecdc.ingest.tables import open_target
from lakecdc.metadata.positions import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.ingest.engine.decoded import Decoded, Known

_EPOCH = 1
_IDENTITY = "files"


def open_source(spark: SparkSession, spec: JobSpec) -> Files:
    """Open the files source of an ingest spec."""
    assert isinstance(spec.source, FilesSource)
    return Files(spark, spec, spec.source)


@dataclass
class _Feed:
    """One table and the files that it reads.

    :param position: where it stands.
    :param recorded: where the batch ends in which a run was interrupted, until that has been repeated.
    :param memory: files that it has read; None until it is asked.
    :param extended: the same with the files of the batch under way.
    :param queue: files that it takes up in this run; None until it is asked.
    :param count: files that it had read before this run.
    """

    position: Position | None
    recorded: Position | None
    failed: bool = False
    memory: Memory | None = None
    extended: Memory | None = None
    queue: Queue | None = None
    count: int = 0


class Files:
    """The files that a spec's paths name, as an ingest source."""

    def __init__(self, spark: SparkSession, spec: JobSpec, source: FilesSource) -> None:
        self.spark, self.spec, self.source = spark, spec, source
        self.refused: Mapping[str, Exception] = {}
        self.given_up: Mapping[str, Exception] = {}
        self.facts: Mapping[str, object] = {}
        self._feeds: dict[str, _Feed] = {}
        self._files: list[str] = []
        self._sizes: dict[str, int] = {}
        self._shown: Shown | None = None

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """List the files and find out which of them each table has not seen.

        :raises InputError: if a path names nothing that can be read.
        """
        self.refused = {
            table: InputError(f"It has been fed from a source of type {position.source!r}.", table=table)
            for table, position in positions.items()
            if position and position.source != "files"
        }
        self._feeds = {t: _Feed(p, recorded.get(t), t in self.refused) for t, p in positions.items()}
        self._files = list_files(self.spark, self.source.paths)

    def rounds(self) -> Iterator[list[Batch]]:
        """Micro-batches of at most ``max_batch_bytes`` until every table has seen the files, or ``max_files_per_run``.

        Where a run was interrupted, a round before them repeats the files of the interrupted batch.
        """
        if any(feed.recorded for feed in self._feeds.values()):
            yield self._round(set(self._feeds))
            for feed in self._feeds.values():
                feed.recorded = None
        left = set(self._feeds)
        while left:
            yield self._round(left)
            left = {t for t, feed in self._feeds.items() if feed.queue and feed.queue.files and not feed.failed}

    def _round(self, tables: set[str]) -> list[Batch]:
        batches = []
        for target in self.spec.targets:
            if target.table in tables and not self._feeds[target.table].failed:
                try:
                    batches.append(self._batch(target))
                except Exception as error:
                    self.failed(target.table, error)
                    self.refused = {**self.refused, target.table: error}
        return batches

    def applied(self, table: str, position: Position) -> None:
        """Remember where the table stands."""
        feed = self._feeds[table]
        feed.position, feed.memory = position, feed.extended
        if feed.queue:
            feed.queue.done()

    def failed(self, table: str, error: Exception) -> None:
        """Leave the table out from now on."""
        self._feeds[table].failed = True

    def finish_round(self) -> None:
        """Let go of what the round kept in memory."""
        self.spark.catalog.clearCache()

    def close(self) -> None:
        """Nothing is held."""

    def _batch(self, target: Target) -> Batch:
        feed, catalog = self._feeds[target.table], self.spec.catalog.name
        if feed.memory is None:
            feed.memory = recall(self.spark, catalog, target.table, feed.position)
            feed.count = feed.memory.count
        memory = feed.memory
        if feed.recorded is None:
            new = self._new_files(feed, memory)
            feed.extended, chapters = extended(memory, new, self._listing())
            if not self.spec.options.dry_run:
                write(self.spark, catalog, target.table, chapters)
        else:
            # what it forgot is forgotten, whatever the source shows by now
            feed.extended = recall(self.spark, catalog, target.table, feed.recorded)
            new = self._files_again(target.table, memory, feed.extended)
        read_through = feed.position.read_through if feed.position else None
        after = Position("files", _IDENTITY, feed.extended.offsets(), read_through)
        facts: dict[str, object] = {"files_read": memory.count - feed.count + len(new)}
        if forgotten := len(memory.all) + len(new) - len(feed.extended.all):
            facts["files_forgotten"] = forgotten
        if not new:
            columns = tuple(Column(k, "string") for k in target.key)
            return Batch(target, target.key, columns, None, after, source=SourceFacts(in_order=False, facts=facts))
        numbers = {name: memory.count + i for i, name in enumerate(new)}
        try:
            found = self._rows(target, numbers) if self.source.has_rows else self._events(target, numbers)
        except Exception as error:
            told = long_line(error)
            if told is None:
                raise
            hint = "Take the file out of source.path, or correct it: a line is a message."
            raise InputError(told, table=target.table, hint=hint) from error
        batch = table_batch(target, found, with_read_through(after, found.newest), facts)
        # rows that arrival alone puts in order lie above all that came before
        in_order = self.source.has_rows and self.source.order_by is None
        return replace(batch, source=replace(batch.source, in_order=in_order))

    def _new_files(self, feed: _Feed, memory: Memory) -> list[str]:
        """Return the files of a table's batch, in order of their names."""
        if not feed.queue:
            seen = memory.all
            feed.queue = self._queue([name for name in self._files if fingerprint(name) not in seen])
        return feed.queue.take(self._sizes, self.source.max_batch_bytes)

    def _files_again(self, table: str, memory: Memory, recorded: Memory) -> list[str]:
        """Return the files of an interrupted batch.

        :param recorded: the memory as it was to be then.
        :raises InputError: if one of them is gone.
        """
        wanted = recorded.all - memory.all
        again = [name for name in self._files if fingerprint(name) in wanted]
        if len(again) < len(wanted):
            raise InputError(
                f"An interrupted run has written {len(wanted)} files to the history table and not to this one, and "
                f"{len(wanted) - len(again)} of them are no longer there.",
                table=table,
                hint="Put the files back, then run again.",
            )
        return again

    def _listing(self) -> Shown:
        """Return what the source has shown in this run; nothing can be told to be gone while a path shows no file."""
        if self._shown is None:
            paths, bound = self.source.paths, self.source.forget_gone_files
            told = bound and (len(paths) == 1 or all(list_files(self.spark, [path]) for path in paths))
            files = frozenset(fingerprint(name) for name in self._files) if told else frozenset[str]()
            self._shown = Shown(fingerprint("\n".join(sorted(paths))), files, bound if told else 0)
        return self._shown

    def _queue(self, new: list[str]) -> Queue:
        """Return what a table takes up in this run."""
        found = Queue(new[: self.source.max_files_per_run or None])
        unknown = [name for name in found.files if name not in self._sizes]
        if self.source.max_batch_bytes and len(found.files) > 1 and unknown:
            self._sizes |= sizes(self.spark, self.source.paths, unknown)
        return found

    def _events(self, target: Target, numbers: Mapping[str, int]) -> Decoded:
        settings = {"order_by": self.source.order_by} if self.source.order_by else {}
        reading = Reading(_EPOCH, self.source.unavailable_value, settings)
        position = self._feeds[target.table].position
        high = position.high_order if position else None
        known = replace(self._known(target), high_order=high)
        name = self.source.format
        if name == "debezium-avro":
            # records of container files come as what they say in JSON
            name = "debezium-json"
        elif self.source.records == "value":
            known = replace(known, scan=scan_of_lines(self.spark, numbers))
        # what no table can be told of is kept once, with the first
        adopt = target == self.spec.targets[0]
        try:
            return decode(partial(self._messages, numbers), name, target, reading, known, adopt=adopt)
        except Exception as error:
            cut = known.scan.read.cut() if known.scan and isinstance(known.scan.read, Lines) else None
            if cut is None:
                raise
            raise InputError(
                f"A file was changed while it was read. {cut}",
                table=target.table,
                hint="Put it back as it was and run again; write files elsewhere and rename them into place.",
            ) from error

    def _messages(self, numbers: Mapping[str, int]) -> DataFrame:
        if self.source.format == "debezium-avro":
            return container_messages(self.spark, numbers)
        records = lines(self.spark, numbers)
        return from_dumped_records(records) if self.source.records == "kafka" else from_values(records)

    def _rows(self, target: Target, numbers: Mapping[str, int]) -> Decoded:
        known = self._known(target)
        cells = cells_of_files(self.spark, numbers, self.source, known.types)
        return decode_cells(cells, target, known, row_reading(self.source))

    def _known(self, target: Target) -> Known:
        return known_of(open_target(self.spark, self.spec.catalog.name, target.table), target)


def row_reading(source: FilesSource) -> RowReading:
    """How rows of the source's files are read."""
    return RowReading(_EPOCH, source.order_by, timestamp_format=source.timestamp_format)
