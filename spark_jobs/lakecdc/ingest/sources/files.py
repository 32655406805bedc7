"""Change events in files: each file is read once per table, in order of the files' names."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError, LakecdcError
from lakecdc.contract.sources.files import FilesSource
from lakecdc.ingest.change import Column, TableBatch
from lakecdc.ingest.formats.decode import Known, decode
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.formats.messages import from_dumped_records, from_values
from lakecdc.ingest.sources.message_batches import known_types, table_batch, with_read_through
from lakecdc.metadata.positions import Position

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target

_EPOCH = 1
_IDENTITY = "files"
# six bytes of a hash name a file in the position; two names collide once in 10^11 pairs
_FINGERPRINT_BYTES = 6
_MAX_FILES = 900


def open_source(spark: SparkSession, spec: JobSpec) -> Files:
    """Open the files source of an ingest spec."""
    assert isinstance(spec.source, FilesSource)
    return Files(spark, spec, spec.source)


class Files:
    """The files that a spec's paths name, as an ingest source."""

    def __init__(self, spark: SparkSession, spec: JobSpec, source: FilesSource) -> None:
        self.spark, self.spec, self.source = spark, spec, source
        self.refused: Mapping[str, Exception] = {}
        self.given_up: Mapping[str, Exception] = {}
        self._positions: dict[str, Position | None] = {}
        self._recorded: dict[str, Position] = {}
        self._failed: set[str] = set()
        self._files: list[str] = []

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """List the files and find out which of them each table has not seen.

        :raises InputError: if a path names nothing that can be read.
        """
        self._positions = dict(positions)
        self.refused = {
            table: InputError(f"It has been fed from a source of type {position.source!r}.", table=table)
            for table, position in positions.items()
            if position and position.source != "files"
        }
        self._failed = set(self.refused)
        self._recorded = dict(recorded)
        self._files = self._list()

    def rounds(self) -> Iterator[list[TableBatch]]:
        """One round: all files a table has not seen, or the first ``max_files_per_run`` of them.

        Where a run was interrupted, a round before it repeats the files of the interrupted batch.
        """
        if self._recorded:
            yield self._round()
            self._recorded = {}
        yield self._round()

    def _round(self) -> list[TableBatch]:
        batches = []
        for target in self.spec.targets:
            if target.table not in self._failed:
                try:
                    batches.append(self._batch(target))
                except LakecdcError as error:
                    self.failed(target.table, error)
                    self.refused = {**self.refused, target.table: error}
        return batches

    def applied(self, table: str, position: Position) -> None:
        """Remember where the table stands."""
        self._positions[table] = position

    def failed(self, table: str, error: Exception) -> None:
        """Leave the table out from now on."""
        self._failed.add(table)

    def finish_round(self) -> None:
        """Let go of what the round kept in memory."""
        self.spark.catalog.clearCache()

    def close(self) -> None:
        """Nothing is held."""

    def _list(self) -> list[str]:
        try:
            return sorted(self.spark.read.text(list(self.source.paths)).inputFiles())
        except Exception as error:
            raise InputError(
                f"The files {', '.join(self.source.paths)} cannot be listed: {str(error).splitlines()[0]}",
                hint="Check source.path; a glob must match at least one file.",
            ) from error

    def _batch(self, target: Target) -> TableBatch:
        position = self._positions.get(target.table)
        seen = _decode_seen(position)
        new = self._new_files(target.table, seen)
        after = _position(target, seen | {_fingerprint(name) for name in new}, position)
        facts: dict[str, object] = {"files_read": len(new)}
        if not new:
            columns = tuple(Column(k, "string") for k in target.key)
            return TableBatch(target, target.key, columns, None, after, in_order=False, facts=facts)
        return self._decoded(target, new, after, facts)

    def _new_files(self, table: str, seen: set[str]) -> list[str]:
        """The files of a table's batch, in order of their names.

        :raises InputError: if a file of an interrupted batch is gone.
        """
        new = [name for name in self._files if _fingerprint(name) not in seen]
        if table not in self._recorded:
            return new[: self.source.max_files_per_run or None]
        wanted = _decode_seen(self._recorded[table]) - seen
        again = [name for name in new if _fingerprint(name) in wanted]
        if len(again) < len(wanted):
            raise InputError(
                f"An interrupted run has written {len(wanted)} files to the history table and not to this one, and "
                f"{len(wanted) - len(again)} of them are no longer there.",
                table=table,
                hint="Put the files back, then run again.",
            )
        return again

    def _decoded(self, target: Target, files: list[str], after: Position, facts: dict[str, object]) -> TableBatch:
        lines = self._lines(files)
        messages = from_dumped_records(lines) if self.source.records == "kafka" else from_values(lines)
        settings = {"order_by": self.source.order_by} if self.source.order_by else {}
        reading = Reading(_EPOCH, self.source.unavailable_value, settings)
        position = self._positions.get(target.table)
        known = Known(
            known_types(self.spark, self.spec.catalog.name, target.table),
            high_order=position.high_order if position else None,
        )
        # what no table can be told of is kept once, with the first
        adopt = target == self.spec.targets[0]
        found = decode(messages, self.source.format, target, reading, known, adopt=adopt)
        return table_batch(target, found, with_read_through(after, found.newest), facts)

    def _lines(self, files: list[str]) -> DataFrame:
        """Lines with a number that rises in reading order: rank of the file, MiB of the split, line in the task."""
        ranks = F.create_map(*[F.lit(x) for i, name in enumerate(files) for x in (name, i)])
        rank = F.element_at(ranks, F.input_file_name())
        block = F.shiftright(F.input_file_block_start(), 20)
        line = F.monotonically_increasing_id().bitwiseAND(F.lit(0xFFFFFF))
        arrival = F.shiftleft(rank.cast("bigint"), 48) + F.shiftleft(block, 24) + line
        place = F.concat(F.input_file_name(), F.lit("#"), F.hex(F.xxhash64("value")))
        frame = self.spark.read.text(files).select("value", arrival.alias("arrival"), place.alias("place"))
        return frame.where("length(trim(value)) > 0")


def _fingerprint(name: str) -> str:
    digest = hashlib.blake2b(name.encode(), digest_size=_FINGERPRINT_BYTES).digest()
    return base64.urlsafe_b64encode(digest).decode()


def _decode_seen(position: Position | None) -> set[str]:
    text = position.offsets.get("files", "") if position else ""
    size = len(_fingerprint(""))
    return {text[i : i + size] for i in range(0, len(text), size)}


def _position(target: Target, seen: set[str], before: Position | None) -> Position:
    if len(seen) > _MAX_FILES:
        raise InputError(
            f"{len(seen)} files would be recorded; one table can remember {_MAX_FILES}.",
            table=target.table,
            hint="Merge the event files, or move read ones away and begin a new table.",
        )
    read_through = before.read_through if before else None
    return Position("files", _IDENTITY, {"files": "".join(sorted(seen))}, read_through)
