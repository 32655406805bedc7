"""Record the cluster at the start of a run, and check whether a table can continue in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.kafka import KafkaSource, moment
from lakecdc.contract.target import Target
from lakecdc.ingest.sources.kafka.cluster import Cluster, Place, Topic
from lakecdc.ingest.sources.kafka.progress import Followed, Progress

REPARTITIONED = "the topic {0} got more partitions, and keys have moved between them"
SEVERAL = "several topics feed the table"
#: remedy for a table that cannot continue
RELOAD = "have its rows delivered again (a new snapshot of the connector) and feed a new table"


@dataclass(frozen=True)
class Topology:
    """Topics and offsets at the start of a run.

    :param lows: lowest offset of each partition.
    :param highs: its end.
    :param ends: where this run stops: its end, or the offset of ``end_time``.
    :param starts: where a new table begins.
    :param through: all records up to this time are before ``ends``.
    """

    topics: Mapping[str, Topic]
    lows: Mapping[Place, int]
    highs: Mapping[Place, int]
    ends: Mapping[Place, int]
    starts: Mapping[Place, int]
    through: datetime


def survey(cluster: Cluster, source: KafkaSource) -> Topology:
    topics, now = cluster.topics(source.reads), datetime.now(UTC)
    places = [(t.name, p) for t in topics.values() for p in range(t.partitions)]
    lows, highs = cluster.offsets(places, "earliest"), cluster.offsets(places, "latest")

    def at(text: str) -> dict[Place, int]:
        offsets = cluster.offsets(places, int(moment(text, "source").timestamp() * 1000))
        return {place: highs[place] if offset < 0 else min(offset, highs[place]) for place, offset in offsets.items()}

    ends = at(source.end_time) if source.end_time else highs
    known = {"earliest": lows, "latest": highs}
    starts = known[source.start] if source.start in known else at(source.start)
    through = min(now, moment(source.end_time, "source")) if source.end_time else now
    return Topology(topics, lows, highs, ends, starts, through.astimezone(UTC))


def topics_of(target: Target, source: KafkaSource, there: Sequence[str], *, single: bool) -> list[str]:
    """Return the topics that feed a target; empty if only future ones can.

    :param there: existing topics that the source reads.
    :param single: it is the spec's only target.
    :raises InputError: a named topic does not exist, or none is named like the target.
    """
    if missing := [name for name in source.topics if name not in there]:
        raise InputError(
            f"The topics {', '.join(missing)} do not exist.",
            hint="Check source.topics, and that the login may describe them.",
        )
    names = source.topics_of(target, there, single=single)
    if not names and source.topics:
        raise InputError(
            f"None of the topics {', '.join(source.topics)} is named like it.",
            hint="Name the topics that feed it in source.routes.",
        )
    return names


def checked(progress: Progress, names: Sequence[str], topology: Topology, source: KafkaSource) -> Progress:
    """Return the progress adjusted to the cluster.

    :param names: topics that feed the table by the spec.
    :raises InputError: a topic is missing or was recreated, or no longer has the next offset.
    """
    for name, followed in progress.topics.items():
        if not source.reads(name):
            continue  # the spec no longer names it; its position stays
        topic = topology.topics.get(name)
        if topic is None:
            raise InputError(
                f"The topic {name!r}, which feeds the table, no longer exists.",
                hint=f"Remove it from source.topics if that is intended; else {RELOAD}.",
            )
        if followed.id and topic.id and followed.id != topic.id:
            progress = _recreated(progress, topic, topology, source)
        else:
            progress = _still_there(progress, topic, topology, source)
    if len({*progress.topics, *names}) > 1:
        progress = progress.made_strict(SEVERAL)
    return progress


def extended(progress: Progress, names: Sequence[str], topology: Topology, *, first: bool) -> Progress:
    """Add new topics and partitions at their beginning, or for a new table (``first``) where the source says."""
    begin = topology.starts if first else topology.lows
    topics = dict(progress.topics)
    for name in names:
        topic, known = topology.topics[name], topics.get(name)
        old = known.next if known else ()
        new = tuple(begin[name, p] for p in range(len(old), topic.partitions))
        topics[name] = Followed(known.id if known and known.id else topic.id, (*old, *new))
        if known and new:
            progress = progress.made_strict(REPARTITIONED.format(name))
    if len(topics) > 1:
        progress = progress.made_strict(SEVERAL)
    return replace(progress, topics=topics)


def _recreated(progress: Progress, topic: Topic, topology: Topology, source: KafkaSource) -> Progress:
    if topic.id not in source.accept_topic_ids:
        raise InputError(
            f"The topic {topic.name!r} is not the one that fed the table: its id is {topic.id!r} and was "
            f"{progress.topics[topic.name].id!r}. It was deleted and recreated, or this is another cluster.",
            hint=f"If all its events come after those read before, add {topic.id!r} to source.accept_topic_ids; "
            f"else {RELOAD}.",
            topic=topic.name,
            topic_id=topic.id,
        )
    lows = tuple(topology.lows[topic.name, p] for p in range(topic.partitions))
    marks = {place: order for place, order in progress.marks.items() if place[0] != topic.name}
    topics = {**progress.topics, topic.name: Followed(topic.id, lows)}
    # keys may be in other partitions now, but all events of the new epoch are above those of the old one
    return replace(progress, epoch=progress.epoch + 1, topics=topics, marks=marks)


def _still_there(progress: Progress, topic: Topic, topology: Topology, source: KafkaSource) -> Progress:
    offsets = list(progress.topics[topic.name].next)
    for partition, offset in enumerate(offsets):
        place = (topic.name, partition)
        if place not in topology.highs or topology.highs[place] < offset:
            raise InputError(
                f"The topic {topic.name!r} ends before the offset {offset} of partition {partition}, which is next: it "
                "was recreated, or its newest records were lost.",
                hint=f"To continue, {RELOAD}.",
            )
        if topology.lows[place] > offset:
            if not source.accept_gaps:
                raise InputError(
                    f"The topic {topic.name!r} no longer has the offset {offset} of partition {partition}, which is "
                    f"next; its oldest is {topology.lows[place]}. Retention removed unread events.",
                    hint=f"Keep the topic's records longer. To continue, {RELOAD}; or set source.accept_gaps to "
                    "continue without the missing changes.",
                )
            offsets[partition] = topology.lows[place]
    followed = replace(progress.topics[topic.name], next=tuple(offsets))
    return replace(progress, topics={**progress.topics, topic.name: followed})
