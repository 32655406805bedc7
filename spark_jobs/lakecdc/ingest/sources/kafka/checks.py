"""What can be told of Kafka before a run: whether the cluster answers, and which topics feed which tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from lakecdc.contract.findings import Finding, summed, tried
from lakecdc.contract.secrets import resolve
from lakecdc.ingest.sources.kafka import topology

if TYPE_CHECKING:
    from lakecdc.contract.sources.kafka import KafkaSource
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.ingest.sources.kafka.cluster import Topic


def findings(spec: JobSpec, source: KafkaSource) -> Iterator[Finding]:
    """Ask the cluster for the topics, as a run does when it starts.

    :param source: the spec's.
    """
    if source.reader == "spark":
        remedy = "A dry run of the job tells: airflow lakecdc run ingest --dry-run."
        yield Finding("source", "warn", f"{source.bootstrap_servers}, which only Java's client can ask", remedy)
        return
    topics: dict[str, Topic] = {}
    yield tried("source", _asked, source, topics)
    if topics:
        found = [tried(f"topics of {target.table}", _fed, spec, source, topics, target) for target in spec.targets]
        yield from summed("source topics", found, "tables have topics")


def _asked(source: KafkaSource, topics: dict[str, Topic]) -> Finding | str:
    from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster

    settings = resolve(source.settings, "source.settings")
    topics |= LibrdkafkaCluster({**settings, "bootstrap.servers": source.bootstrap_servers}).topics(source.wants)
    wanted = source.topic_pattern or ", ".join(source.topics)
    if not topics:
        remedy = "Check the names, and that the login may describe the topics."
        return Finding("source", "warn", f"{source.bootstrap_servers} answers, but has no topic {wanted}", remedy)
    partitions = sum(topic.partitions for topic in topics.values())
    return f"{source.bootstrap_servers} answers, {len(topics)} topics with {partitions} partitions"


def _fed(spec: JobSpec, source: KafkaSource, topics: Mapping[str, Topic], target: Target) -> Finding | str:
    if names := topology.topics_of(target, source, list(topics), single=len(spec.targets) == 1):
        return ", ".join(names)
    remedy = "It stays as it is until there is one. source.routes names topics that are called otherwise."
    return Finding(f"topics of {target.table}", "warn", "no topic feeds it yet", remedy)
