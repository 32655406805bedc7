"""Read change events or rows from files: each file once per table, ordered by name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.engine.decode import decode
from lakecdc.ingest.engine.decoded import Decoded
from lakecdc.ingest.engine.pieces import Lines, local_path, unusable_file
from lakecdc.ingest.engine.records import RowReading, decode_cells
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.messages import from_dumped_records, from_values
from lakecdc.ingest.sources.file_memory import Memory, Shown, extended, fingerprint, recall, write
from lakecdc.ingest.sources.file_records import cells_of_files, lines, list_files, scan_of_containers, scan_of_lines
from lakecdc.ingest.sources.message_batches import BatchSource, quiet_batch, table_batch, with_read_through
from lakecdc.metadata.positions import Position

_EPOCH = 1
_IDENTITY = "files"
_SLASHES = re.compile(r"^([\w+.-]+):/+")


@dataclass
class Queue:
    """Unread files of a table as URIs in reading order, the first ``batch_size`` of them in the current batch."""

    files: list[str]
    batch_size: int = 0

    def take(self, sizes: Mapping[str, int], most_bytes: int) -> list[str]:
        """Return the next batch: at least one file, and as many as fit into ``most_bytes``, unless that is 0."""
        total = self.batch_size = 0
        for name in self.files:
            total += sizes.get(name, 0)
            if self.batch_size and most_bytes and total > most_bytes:
                break
            self.batch_size += 1
        return self.files[: self.batch_size]

    def done(self) -> None:
        """Remove the applied batch."""
        del self.files[: self.batch_size]
        self.batch_size = 0


@dataclass
class _Feed:
    """A table during a run.

    :param recorded: end of an interrupted batch, until the batch has been repeated.
    :param memory: files that the table has read; None until loaded.
    :param extended: ``memory`` with the files of the current batch.
    :param queue: files to read in this run; None until known.
    :param count: files read before this run.
    """

    position: Position | None
    recorded: Position | None
    memory: Memory | None = None
    extended: Memory | None = None
    queue: Queue | None = None
    count: int = 0


class Files(BatchSource):
    """Files as an ingest source."""

    def __init__(self, spark: SparkSession, spec: JobSpec) -> None:
        assert isinstance(spec.source, FilesSource)
        super().__init__(spark, spec)
        self.source = spec.source
        self._feeds: dict[str, _Feed] = {}
        self._files: list[str] = []
        self._sizes: dict[str, int] = {}
        self._shown: Shown | None = None

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """List the files; see :class:`lakecdc.ingest.batch.IngestSource`."""
        self.refused = {
            table: InputError(f"It was fed from a source of type {position.source!r}.", table=table)
            for table, position in positions.items()
            if position and position.source != "files"
        }
        self._feeds = {t: _Feed(p, recorded.get(t)) for t, p in positions.items()}
        self.left_out = set(self.refused)
        self._files = list_files(self.spark, self.source.paths)

    def rounds(self) -> Iterator[list[Batch]]:
        """Yield micro-batches; if a run was interrupted, the first round repeats the interrupted batch."""
        if any(feed.recorded for feed in self._feeds.values()):
            yield self._round(set(self._feeds))
            for feed in self._feeds.values():
                feed.recorded = None
        left = set(self._feeds)
        while left:
            yield self._round(left)
            left = {t for t, feed in self._feeds.items() if feed.queue and feed.queue.files} - self.left_out

    def _round(self, tables: set[str]) -> list[Batch]:
        return self.round_of((t for t in self.spec.targets if t.table in tables), self._batch)

    def applied(self, table: str, position: Position) -> None:
        feed = self._feeds[table]
        feed.position, feed.memory = position, feed.extended
        if feed.queue:
            feed.queue.done()

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
            # the repeated batch forgets the same files as before, whatever the source shows now
            feed.extended = recall(self.spark, catalog, target.table, feed.recorded)
            new = self._files_again(memory, feed.extended)
        read_through = feed.position.read_through if feed.position else None
        after = Position("files", _IDENTITY, feed.extended.offsets(), read_through)
        facts: dict[str, object] = {"files_read": memory.count - feed.count + len(new)}
        if forgotten := len(memory.all) + len(new) - len(feed.extended.all):
            facts["files_forgotten"] = forgotten
        if not new:
            return quiet_batch(target, after, facts)
        numbers = {name: memory.count + i for i, name in enumerate(new)}
        try:
            decoded = self._rows(target, numbers) if self.source.has_rows else self._events(target, numbers)
        except Exception as error:
            problem = unusable_file(error)
            if problem is None:
                raise
            hint = "Correct the file, or remove it from source.path."
            raise InputError(problem, table=target.table, hint=hint) from error
        batch = table_batch(target, decoded, with_read_through(after, decoded.newest), facts)
        # rows ordered by arrival are above all earlier ones
        in_order = self.source.has_rows and self.source.order_by is None
        return replace(batch, source=replace(batch.source, in_order=in_order))

    def _new_files(self, feed: _Feed, memory: Memory) -> list[str]:
        if not feed.queue:
            seen, most = memory.all, self.source.max_files_per_run or None
            feed.queue = Queue([name for name in self._files if fingerprint(name) not in seen][:most])
            unknown = [name for name in feed.queue.files if name not in self._sizes]
            if self.source.max_batch_bytes and len(feed.queue.files) > 1 and unknown:
                self._sizes |= sizes(self.spark, self.source.paths, unknown)
        return feed.queue.take(self._sizes, self.source.max_batch_bytes)

    def _files_again(self, memory: Memory, recorded: Memory) -> list[str]:
        """Return the files of an interrupted batch; raise an :class:`InputError` if one is missing."""
        missing = recorded.all - memory.all
        again = [name for name in self._files if fingerprint(name) in missing]
        if len(again) < len(missing):
            raise InputError(
                f"An interrupted run wrote {len(missing)} files to the history table but not to this one, and "
                f"{len(missing) - len(again)} of them no longer exist.",
                hint="Put the files back, then run again.",
            )
        return again

    def _listing(self) -> Shown:
        """Return the files that the source shows; none counts as missing while one of several paths shows none."""
        if self._shown is None:
            paths, most = self.source.paths, self.source.forget_gone_files
            is_complete = most and (len(paths) == 1 or all(list_files(self.spark, [path]) for path in paths))
            files = frozenset(map(fingerprint, self._files)) if is_complete else frozenset[str]()
            self._shown = Shown(fingerprint("\n".join(sorted(paths))), files, most if is_complete else 0)
        return self._shown

    def _events(self, target: Target, numbers: Mapping[str, int]) -> Decoded:
        reading = Reading(_EPOCH, self.source.unavailable_value, self.source.order_by)
        position = self._feeds[target.table].position
        high = position.high_order if position else None
        known = replace(self.known(target), high_order=high)
        name = self.source.format
        if name == "debezium-avro":
            # tasks convert the records to JSON
            name, known = "debezium-json", replace(known, scan=scan_of_containers(self.spark, numbers))
        elif self.source.records == "value":
            known = replace(known, scan=scan_of_lines(self.spark, numbers))
        # messages of no table are quarantined once, with the first target
        adopt = target == self.spec.targets[0]
        try:
            return decode(partial(self._messages, numbers), name, target, reading, known, adopt=adopt)
        except Exception as error:
            cut = known.scan.read.cut() if known.scan and isinstance(known.scan.read, Lines) else None
            if cut is None:
                raise
            raise InputError(
                f"A file was changed while lakecdc read it. {cut}",
                hint="Restore it and run again; write files elsewhere and rename them into place.",
            ) from error

    def _messages(self, numbers: Mapping[str, int]) -> DataFrame:
        if self.source.format == "debezium-avro":
            return scan_of_containers(self.spark, numbers).frame()
        records = lines(self.spark, numbers)
        return from_dumped_records(records) if self.source.records == "kafka" else from_values(records)

    def _rows(self, target: Target, numbers: Mapping[str, int]) -> Decoded:
        known = self.known(target)
        cells = cells_of_files(self.spark, numbers, self.source, known.types)
        return decode_cells(cells, target, known, row_reading(self.source))


open_source = Files


def row_reading(source: FilesSource) -> RowReading:
    return RowReading(_EPOCH, source.order_by, timestamp_format=source.timestamp_format)


def sizes(spark: SparkSession, paths: Sequence[str], files: Sequence[str]) -> dict[str, int]:
    """Return the sizes in bytes of files by URI; ``paths`` are paths and globs that list them."""
    local = {name: path for name in files if (path := local_path(name))}
    if len(local) == len(files):
        return {name: os.path.getsize(path) for name, path in local.items()}
    listed = spark.read.format("binaryFile").load(list(paths)).select("path", "length").collect()
    lengths = {_plain(row["path"]): int(row["length"]) for row in listed}
    return {name: lengths.get(_plain(unquote(name)), 0) for name in files}


def _plain(path: str) -> str:
    """Return a URI with one slash; Spark writes both ``file:/a`` and ``file:///a``."""
    return _SLASHES.sub(r"\1:/", path)
