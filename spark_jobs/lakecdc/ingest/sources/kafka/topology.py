"""The cluster as a run found it at its start, and whether a table can go on in it from where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError
from lakecdc.contract.sources.kafka import KafkaSource, moment
from lakecdc.ingest.sources.kafka.cluster import Cluster, Place, Topic
from lakecdc.ingest.sources.kafka.progress import Followed, Progress

if TYPE_CHECKING:
    from lakecdc.contract.target import Target

REPARTITIONED = "the topic {0} got more partitions, and keys have moved between them"
SEVERAL = "several topics feed the table"
#: what is left to do where a table cannot go on
RELOAD = "have its rows delivered again (a new snapshot of the connector) and feed a new table"


@dataclass(frozen=True)
class Topology:
    """Topics and offsets, asked once per run.

    :param lows: lowest offset that a partition holds.
    :param highs: its end.
    :param ends: where this run stops: its end, or the offset of ``end_time``.
    :param starts: where a table begins that was never fed.
    :param through: moment that ``ends`` stand for: what the cluster held then lies before them.
    """

    topics: Mapping[str, Topic]
    lows: Mapping[Place, int]
    highs: Mapping[Place, int]
    ends: Mapping[Place, int]
    starts: Mapping[Place, int]
    through: datetime | None = None


def survey(cluster: Cluster, source: KafkaSource) -> Topology:
    """Ask the cluster.

    :raises SourceUnavailableError: if it does not answer.
    """
    topics, asked = cluster.topics(source.wants), datetime.now(UTC)
    places = [(t.name, p) for t in topics.values() for p in range(t.partitions)]
    lows, highs = cluster.beginnings(places), cluster.ends(places)

    def at(text: str) -> dict[Place, int]:
        found = cluster.offsets_at(places, int(moment(text, "source").timestamp() * 1000))
        return {place: highs[place] if offset < 0 else min(offset, highs[place]) for place, offset in found.items()}

    ends = at(source.end_time) if source.end_time else highs
    known = {"earliest": lows, "latest": highs}
    starts = known[source.start] if source.start in known else at(source.start)
    through = min(asked, moment(source.end_time, "source")) if source.end_time else asked
    return Topology(topics, lows, highs, ends, starts, through.astimezone(UTC))


def topics_of(target: Target, source: KafkaSource, there: Sequence[str], *, single: bool) -> list[str]:
    """Return the topics that feed a target; none if later ones may.

    :param there: topics that the source wants and that exist.
    :param single: it is the spec's only target.
    :raises InputError: a topic that is named does not exist, or none is called like the target.
    """
    if missing := [name for name in source.topics if name not in there]:
        raise InputError(
            f"The topics {', '.join(missing)} do not exist.",
            table=target.table,
            hint="Check source.topics, and that the login may describe them.",
        )
    names = source.topics_of(target, there, single=single)
    if not names and source.topics:
        raise InputError(
            f"None of the topics {', '.join(source.topics)} is called like it.",
            table=target.table,
            hint="Name the topics that feed it in source.routes.",
        )
    return names


def checked(
    progress: Progress, names: Sequence[str], topology: Topology, source: KafkaSource, target: Target
) -> Progress:
    """Return the progress as this run may use it.

    :param names: topics that the spec has feed the table.
    :raises InputError: a topic is gone or another one, or no longer holds the next offset.
    """
    for name, followed in progress.topics.items():
        if not source.wants(name):
            continue  # the spec has given it up; its position stays
        topic = topology.topics.get(name)
        if topic is None:
            raise InputError(
                f"The topic {name!r}, which feeds it, does not exist any more.",
                table=target.table,
                hint=f"Take it out of source.topics if that is meant; else {RELOAD}.",
            )
        if followed.id and topic.id and followed.id != topic.id:
            progress = _made_anew(progress, topic, topology, source, target)
        else:
            progress = _still_there(progress, topic, topology, source, target)
    if len({*progress.topics, *names}) > 1:
        progress = progress.made_strict(SEVERAL)
    return progress


def extended(progress: Progress, names: Sequence[str], topology: Topology, *, first: bool) -> Progress:
    """Return the progress with the topics and partitions that it does not know yet, at their beginning.

    :param first: the table was never fed, so that the source's ``start`` decides where they begin.
    """
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


def _made_anew(progress: Progress, topic: Topic, topology: Topology, source: KafkaSource, target: Target) -> Progress:
    if topic.id not in source.accept_topic_ids:
        raise InputError(
            f"The topic {topic.name!r} is not the one that fed it: its id is {topic.id!r} and was "
            f"{progress.topics[topic.name].id!r}. It was deleted and made again, or this is another cluster.",
            table=target.table,
            hint=f"If all its events come after those read before, add {topic.id!r} to source.accept_topic_ids; "
            f"else {RELOAD}.",
            topic=topic.name,
            topic_id=topic.id,
        )
    lows = tuple(topology.lows[topic.name, p] for p in range(topic.partitions))
    marks = {place: order for place, order in progress.marks.items() if place[0] != topic.name}
    anew = replace(
        progress,
        epoch=progress.epoch + 1,
        topics={**progress.topics, topic.name: Followed(topic.id, lows)},
        marks=marks,
    )
    # keys may lie in other partitions now, but all events of the new epoch are above all of the old one
    return anew


def _still_there(progress: Progress, topic: Topic, topology: Topology, source: KafkaSource, target: Target) -> Progress:
    offsets = list(progress.topics[topic.name].next)
    for partition, offset in enumerate(offsets):
        place = (topic.name, partition)
        if place not in topology.highs or topology.highs[place] < offset:
            raise InputError(
                f"The topic {topic.name!r} ends before the offset {offset} of partition {partition}, which is next: it "
                "was made again, or its newest records were lost.",
                table=target.table,
                hint=f"To go on, {RELOAD}.",
            )
        if topology.lows[place] > offset:
            if not source.accept_gaps:
                raise InputError(
                    f"The topic {topic.name!r} no longer holds the offset {offset} of partition {partition}, which is "
                    f"next; its oldest is {topology.lows[place]}. Retention has removed events that were not read.",
                    table=target.table,
                    hint=f"Keep the topic's records longer. To go on, {RELOAD}; or set source.accept_gaps, and the "
                    "changes in between stay missing.",
                )
            offsets[partition] = topology.lows[place]
    followed = replace(progress.topics[topic.name], next=tuple(offsets))
    return replace(progress, topics={**progress.topics, topic.name: followed})
