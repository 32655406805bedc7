"""Read topics from the tables' positions to the topics' ends, in bounded micro-batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError, concerning
from lakecdc.contract.secrets import resolve
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.kafka_java import translated
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.iceberg.table import open_if_there
from lakecdc.ingest.batch import Batch
from lakecdc.ingest.engine.decode import decode
from lakecdc.ingest.engine.decoded import Decoded
from lakecdc.ingest.envelopes.debezium import unwrapped
from lakecdc.ingest.envelopes.json_values import try_parse_json
from lakecdc.ingest.envelopes.message import member
from lakecdc.ingest.formats.avro_registry import Registry
from lakecdc.ingest.formats.envelope import Reading
from lakecdc.ingest.sources.kafka import progress as stored_progress
from lakecdc.ingest.sources.kafka import topology
from lakecdc.ingest.sources.kafka.cluster import Headers, Range, Reader, Record, count
from lakecdc.ingest.sources.kafka.progress import Progress, aligned, bounded
from lakecdc.ingest.sources.kafka.topology import RELOAD, Topology
from lakecdc.ingest.sources.message_batches import BatchSource, quiet_batch, table_batch, with_read_through
from lakecdc.metadata.positions import Position
from lakecdc.model.order import Stretch, arrival_of, is_change, is_higher, rises, time_of
from lakecdc.runtime.failpoints import reach

log = logging.getLogger(__name__)

_IDENTITY = "topic-ids"
_KeyNames = Callable[[bytes | None, Headers], set[str] | None]
_OTHER_KEY = "the records are not keyed by the table's key columns, so a key may be in any partition"


@dataclass
class Feed:
    """A table during a run.

    :param names: the topics that feed it.
    :param position: the table's position; None for a new table.
    :param progress: the position, decoded and adjusted to the cluster.
    :param goal: where its first batch must end, as recorded by an interrupted run.
    :param record_bytes: mean size of a record; None until sampled.
    """

    target: Target
    names: list[str]
    position: Position | None
    progress: Progress
    goal: Progress | None = None
    record_bytes: float | None = None


class KafkaIngest(BatchSource):
    """Topics as an ingest source, which closes the reader."""

    def __init__(self, spark: SparkSession, spec: JobSpec, reader: Reader) -> None:
        assert isinstance(spec.source, KafkaSource)
        super().__init__(spark, spec)
        self.source = spec.source
        self._reader = reader
        self._registry = Registry(self.source.registry) if self.source.registry else None
        self._feeds: dict[str, Feed] = {}

    def start(self, positions: Mapping[str, Position | None], recorded: Mapping[str, Position]) -> None:
        """Query the cluster, once per run, and check that each table can continue."""
        self._topology: Topology = topology.survey(self._reader, self.source)
        topics, single = list(self._topology.topics), len(self.spec.targets) == 1
        used = {name for t in self.spec.targets for name in self.source.topics_of(t, topics, single=single)}
        if unused := sorted(set(topics) - used):
            log.info("Topics that feed no target: %s", ", ".join(unused))
        for target in (t for t in self.spec.targets if t.table in positions):
            try:
                with concerning(target.table):
                    feed = self._opened(target, positions[target.table], recorded.get(target.table))
                self._feeds[target.table] = feed
            except Exception as error:
                self.refused[target.table] = error
        reach("after_source_start")

    def rounds(self) -> Iterator[list[Batch]]:
        while True:
            yield self.round_of([feed.target for feed in self._feeds.values()], self._batch)
            if not any(self._unread(feed, feed.progress) for feed in self._feeds.values()):
                return

    def applied(self, table: str, position: Position) -> None:
        feed = self._feeds[table]
        feed.position, feed.progress, feed.goal = position, stored_progress.decode(position), None

    def failed(self, table: str, error: Exception) -> None:
        self._feeds.pop(table, None)

    def finish_round(self) -> None:
        reach("after_round")
        super().finish_round()

    def close(self) -> None:
        self._reader.close()

    def _opened(self, target: Target, position: Position | None, recorded: Position | None) -> Feed:
        progress = stored_progress.resume(position) if position else Progress()
        single = len(self.spec.targets) == 1
        names = topology.topics_of(target, self.source, list(self._topology.topics), single=single)
        is_new = position is None and open_if_there(self.spark, self.spec.catalog.name, target.table) is None
        if is_new and self.source.start == "latest":
            raise InputError(
                'It does not exist, so the position of "latest" cannot be recorded.',
                hint="Create the table first, or use a time as source.start.",
            )
        progress = topology.checked(progress, names, self._topology, self.source)
        return Feed(target, names, position, progress, stored_progress.decode(recorded) if recorded else None)

    def _plan(self, feed: Feed) -> list[Range]:
        """Return the ranges of the table's next batch, and set its progress to their start."""
        first = feed.position is None
        if feed.goal is not None:
            return self._repeated(feed, first)
        feed.progress = topology.extended(feed.progress, feed.names, self._topology, first=first)
        unread = self._unread(feed, feed.progress)
        if feed.record_bytes is None:
            self._look(feed, unread)
        most = self.source.max_offsets_per_batch
        if self.source.max_batch_bytes and feed.record_bytes:
            most = min(most, max(1, int(self.source.max_batch_bytes / feed.record_bytes)))
        places = [r.place for r in unread]
        at_once = aligned(unread, most, lambda moment: self._reader.offsets(places, moment))
        return at_once or bounded(unread, most)

    def _repeated(self, feed: Feed, first: bool) -> list[Range]:
        """Return the ranges of the batch that an interrupted run recorded, if the topics still contain it."""
        assert feed.goal is not None
        ends, names = feed.goal.next, [name for name in feed.goal.topics if name in feed.names]
        shrunk = [
            place for place, end in ends.items() if place[0] in names and self._topology.highs.get(place, 0) < end
        ]
        if shrunk or len(names) < len(feed.goal.topics):
            raise InputError(
                "An interrupted run wrote a batch to the history table, but the topics no longer have it: "
                f"{sorted(feed.goal.topics)}.",
                hint="Keep the same topics in the spec until that batch is applied, or load the table again.",
            )
        grown = topology.extended(feed.progress, names, self._topology, first=first).next
        feed.progress = replace(feed.goal, marks=feed.progress.marks)
        return [Range(*place, grown[place], end) for place, end in sorted(ends.items()) if end > grown[place]]

    def _unread(self, feed: Feed, progress: Progress) -> list[Range]:
        """Return the unread ranges of the table's topics that the spec still names."""
        return progress.unread(feed.names, self._topology.ends)

    def _look(self, feed: Feed, unread: Sequence[Range]) -> None:
        records = self._reader.sample(unread)
        sizes = [len(key or b"") + len(value or b"") for key, value, _ in records]
        # if all offsets were holes, sample the next batch again
        feed.record_bytes = sum(sizes) / len(sizes) if any(sizes) else None
        key_names = self._registry.key_names if self._registry else _json_names
        is_split = feed.target.keyed and len(feed.progress.next) > 1
        if is_split and not is_keyed_by(feed.target.key, records, key_names):
            feed.progress = feed.progress.made_strict(_OTHER_KEY)

    def _batch(self, target: Target) -> Batch:
        feed = self._feeds[target.table]
        if ranges := self._plan(feed):
            return self._read(feed, ranges)
        after = self._after(feed, feed.progress)
        if feed.goal is None:
            after = with_read_through(after, self._topology.through)
        return quiet_batch(target, after, self._facts(feed, feed.progress, []))

    def _read(self, feed: Feed, ranges: list[Range]) -> Batch:
        marks, position = feed.progress.trusted_marks(), feed.position
        high = position.high_order if position else None
        known = replace(self.known(feed.target), marks=marks, high_order=high, scan=self._reader.scan(ranges))
        source, epoch = self.source, feed.progress.epoch
        reading = Reading(epoch, source.unavailable_value, source.order_by, self._registry, routed=True)
        messages = partial(self._reader.messages, ranges)
        decoded = decode(messages, self.source.format, feed.target, reading, known)
        reach("after_read")
        if self.source.format.startswith("debezium") and not feed.target.source_tables:
            through = position.read_through if position else None
            refuse_another_log(feed.progress, through, decoded)
        ends = {r.place: r.end for r in ranges}
        done = feed.progress.read_up_to(ends, decoded.high_orders or {})
        after = with_read_through(self._after(feed, done), decoded.newest)
        return table_batch(feed.target, decoded, after, self._facts(feed, done, ranges))

    def _after(self, feed: Feed, progress: Progress) -> Position:
        read_through = feed.position.read_through if feed.position else None
        return Position(stored_progress.SOURCE, _IDENTITY, stored_progress.encode(progress), read_through)

    def _facts(self, feed: Feed, done: Progress, ranges: list[Range]) -> dict[str, object]:
        return {
            "offsets_read": count(ranges),
            "offsets_left": count(self._unread(feed, done)),
            "topics": len(feed.names),
            "order_by_partition": feed.progress.strict or "yes",
        }


def _json_names(key: bytes | None, headers: Headers = None) -> set[str] | None:
    """Return the names of the members of a JSON key, with or without its schema."""
    document = unwrapped(try_parse_json(key))
    return set(document) if isinstance(document, dict) else None


def _is_row(value: bytes | None) -> bool:
    """Check whether a record without a key is about a row, unlike a TRUNCATE or a logical message."""
    return member(unwrapped(try_parse_json(value)), "op") not in ("t", "m")


def is_keyed_by(columns: Sequence[str], records: Sequence[Record], key_names: _KeyNames = _json_names) -> bool:
    """Check whether each record's key is an object of exactly these columns; a TRUNCATE needs none.

    :param columns: the key columns; if empty, those of the first record.
    :param key_names: returns the columns in a key, from key and headers; None if it has none.
    """
    keys = {
        frozenset(key_names(key, headers) or ()) for key, value, headers in records if key is not None or _is_row(value)
    }
    return keys <= {frozenset(columns)} if columns else len(keys) < 2 and frozenset() not in keys


def refuse_another_log(progress: Progress, read_through: str | None, decoded: Decoded) -> None:
    """Refuse events that are newer than earlier ones of their partition but have lower positions in the source's log.

    A connector that follows its database to another or restored server continues in the same topics with positions of
    another log. Its changes would look old and be dropped. An event that is only sent again is not newer than
    everything read before.

    :param progress: before the batch.
    :param read_through: newest source time before the batch, ISO-8601; None if there is none.
    :raises InputError: there is such an event.
    """
    seen = int(datetime.fromisoformat(read_through).timestamp() * 1000) if read_through else 0
    marks = {f"{topic}/{partition}": mark for (topic, partition), mark in progress.marks.items()}
    for place, high in (decoded.high_orders or {}).items():
        mark = marks.get(place, "")
        is_known = not is_change(high) or rises(high)
        lower = mark if read_through and is_known and is_higher(mark, high) and time_of(high) > seen else None
        lower = lower or _left(decoded.stretches.get(place, ()), mark if rises(mark) else "", seen)
        if lower:
            than = f"{read_through}, up to which the table was fed,"
            if lower != mark:
                than = f"others before them in this batch, of {_moment(lower)},"
            raise _refusal(place, than)


def _left(stretches: Sequence[Stretch], mark: str, seen: int) -> str | None:
    """Return the order key of a change that precedes a newer, lower one of its partition; None without such a pair.

    :param mark: highest order key before the stretches; empty if there is none.
    :param seen: newest source time before them, milliseconds since 1970.
    """
    top = mark
    for first, newest, high in sorted(stretches, key=lambda stretch: arrival_of(stretch[0])):
        for before, change in ((top, first), (top, newest), (high, newest)):
            came_before = before == mark or arrival_of(before) < arrival_of(change)
            if before and came_before and is_higher(before, change) and time_of(change) > seen:
                return before
        top, seen = max(top, high), max(seen, time_of(newest))
    return None


def _refusal(place: str, than: str) -> InputError:
    topic, _, partition = place.rpartition("/")
    return InputError(
        f"The source has another log now: the events of {place} are newer than {than} but have lower positions. The "
        "connector follows another server, or a restored one.",
        hint=f"To continue, {RELOAD}.",
        topic=topic,
        partition=int(partition),
    )


def _moment(order: str) -> str:
    return datetime.fromtimestamp(time_of(order) / 1000, UTC).isoformat()


def open_source(spark: SparkSession, spec: JobSpec) -> KafkaIngest:
    """Open the source of an ingest spec; raise an error if its client or a secret is missing."""
    assert isinstance(spec.source, KafkaSource)
    return KafkaIngest(spark, spec, open_reader(spark, spec.source))


def source_tables(spark: SparkSession, spec: JobSpec) -> list[str]:
    """Return the topics that the source reads."""
    assert isinstance(spec.source, KafkaSource)
    with closing(open_reader(spark, spec.source)) as reader:
        return list(reader.topics(spec.source.reads))


def open_reader(spark: SparkSession, source: KafkaSource) -> Reader:
    """Open the client of the cluster; see :func:`open_source`."""
    settings, servers = resolve(source.settings, "source.settings"), {"bootstrap.servers": source.bootstrap_servers}
    if source.reader == "spark":
        from lakecdc.ingest.sources.kafka.spark_reader import SparkReader

        more = resolve(source.java_settings, "source.java_settings")
        return SparkReader(spark, {**translated(settings, more), **servers})
    try:
        from lakecdc.ingest.sources.kafka.read import LibrdkafkaReader
    except ImportError as error:
        raise InputError(
            f"The Kafka client cannot be imported: {error}.",
            hint="Install confluent-kafka on driver and executors (extra 'spark'), or use Spark's "
            'own client: "reader": "spark".',
        ) from error
    return LibrdkafkaReader(spark, {**settings, **servers})
