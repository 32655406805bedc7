"""Check a Kafka source without Spark: whether a run can start, whether there are new messages, how far tables lag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lakecdc.contract.errors import LakecdcError, concerning
from lakecdc.contract.findings import Finding, merge_passed, run_check
from lakecdc.contract.secrets import resolve
from lakecdc.contract.target import Target
from lakecdc.ingest.sources.kafka import progress, topology
from lakecdc.ingest.sources.kafka.cluster import count
from lakecdc.metadata.source_state import SourceState, may_be_idle

if TYPE_CHECKING:
    from lakecdc.contract.sources.kafka import KafkaSource
    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.sources.kafka.cluster import Topic
    from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster
    from lakecdc.ingest.sources.kafka.topology import Topology
    from lakecdc.metadata.positions import Position


def check(spec: JobSpec, source: KafkaSource, positions: Mapping[str, Position] | None) -> SourceState:
    """Query the cluster as a run does when it starts.

    :param positions: of tables that were fed; None if unknown.
    :raises LakecdcError: no table can be fed from the cluster.
    """
    if source.reader == "spark":
        # only Java's client understands Java's settings
        return SourceState()
    cluster = topology.survey(_cluster(source), source)
    refused: list[LakecdcError] = []
    quiet: dict[str, Position] = {}
    for target in spec.targets:
        position = (positions or {}).get(target.table)
        try:
            with concerning(target.table):
                topics = topology.topics_of(target, source, list(cluster.topics), single=len(spec.targets) == 1)
                idle = _idle_position(source, cluster, topics, position) if position else None
            if idle:
                quiet[target.table] = idle
        except LakecdcError as error:
            refused.append(error)
    if refused and len(refused) == len(spec.targets):
        raise refused[0]
    return SourceState(idle=quiet) if may_be_idle(spec, quiet) else SourceState()


def findings(spec: JobSpec, source: KafkaSource, positions: Mapping[str, Position] | None) -> Iterator[Finding]:
    """Check the cluster's topics as a run does when it starts."""
    if source.reader == "spark":
        remedy = "Use a dry run of the job instead: airflow lakecdc run ingest --dry-run."
        yield Finding("source", "warn", f"{source.bootstrap_servers}, which only Java's client can query", remedy)
        return
    topics: dict[str, Topic] = {}
    yield run_check("source", _list_topics, source, topics)
    if topics:
        results = [
            run_check(f"topics of {target.table}", _fed, spec, source, topics, target) for target in spec.targets
        ]
        yield from merge_passed("source topics", results, "tables have topics")


def lag(source: KafkaSource, positions: Mapping[str, Position]) -> dict[str, int]:
    """Count unread messages by table, with those of new partitions; raise an error for a position of another source."""
    cluster = topology.survey(_cluster(source), source)
    left: dict[str, int] = {}
    for table, position in positions.items():
        with concerning(table):
            names = [name for name in progress.resume(position).topics if source.reads(name)]
            left[table] = count(_expected(source, cluster, names, position).unread(names, cluster.ends))
    return left


def _cluster(source: KafkaSource) -> LibrdkafkaCluster:
    from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster

    settings = resolve(source.settings, "source.settings")
    return LibrdkafkaCluster({**settings, "bootstrap.servers": source.bootstrap_servers})


def _expected(source: KafkaSource, cluster: Topology, topics: list[str], position: Position) -> progress.Progress:
    """Return the progress that a run would start with."""
    before = topology.checked(progress.resume(position), topics, cluster, source)
    return topology.extended(before, topics, cluster, first=False)


def _idle_position(source: KafkaSource, cluster: Topology, topics: list[str], position: Position) -> Position | None:
    """Return the target's position after the run if the topics have nothing new for it; else None."""
    after = _expected(source, cluster, topics, position)
    if after.unread(topics, cluster.ends) or after != progress.decode(position):
        return None
    return position.idle_until(cluster.through)


def _list_topics(source: KafkaSource, topics: dict[str, Topic]) -> Finding | str:
    topics |= _cluster(source).topics(source.reads)
    if not topics:
        names = source.topic_pattern or ", ".join(source.topics)
        remedy = "Check the names, and that the login may describe the topics."
        return Finding("source", "warn", f"{source.bootstrap_servers} answers, but has no topic {names}", remedy)
    partitions = sum(topic.partitions for topic in topics.values())
    return f"{source.bootstrap_servers} answers, {len(topics)} topics with {partitions} partitions"


def _fed(spec: JobSpec, source: KafkaSource, topics: Mapping[str, Topic], target: Target) -> Finding | str:
    if names := topology.topics_of(target, source, list(topics), single=len(spec.targets) == 1):
        return ", ".join(names)
    remedy = "The table stays unchanged until there is one. Name topics with other names in source.routes."
    return Finding(f"topics of {target.table}", "warn", "no topic feeds it yet", remedy)
