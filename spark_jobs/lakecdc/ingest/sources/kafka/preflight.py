"""What a run would refuse of topics, and whether they have anything new, asked before Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError, LakecdcError
from lakecdc.contract.secrets import resolve
from lakecdc.ingest.sources.kafka import progress, topology
from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster
from lakecdc.metadata.source_state import SourceState

if TYPE_CHECKING:
    from lakecdc.contract.sources.kafka import KafkaSource
    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target
    from lakecdc.ingest.sources.kafka.topology import Topology
    from lakecdc.metadata.positions import Position


def check(spec: JobSpec, source: KafkaSource, positions: Mapping[str, Position] | None) -> SourceState:
    """Ask the cluster as a run does when it starts.

    :param source: the spec's.
    :param positions: of the targets that have been fed; None if they are not known.
    :raises LakecdcError: no table can be fed from the cluster.
    """
    if source.reader == "spark":
        # only Java's client can ask with Java's settings
        return SourceState()
    settings = resolve(source.settings, "source.settings")
    found = topology.survey(LibrdkafkaCluster({**settings, "bootstrap.servers": source.bootstrap_servers}), source)
    refused: list[LakecdcError] = []
    for target in spec.targets:
        try:
            _check_target(spec, source, found, target, (positions or {}).get(target.table))
        except LakecdcError as error:
            refused.append(error)
    if refused and len(refused) == len(spec.targets):
        raise refused[0]
    return SourceState()


def _check_target(
    spec: JobSpec, source: KafkaSource, found: Topology, target: Target, position: Position | None
) -> None:
    names = topology.topics_of(target, source, list(found.topics), single=len(spec.targets) == 1)
    if position is None:
        return
    if position.source != progress.SOURCE:
        raise InputError(f"It has been fed from a source of type {position.source!r}.", table=target.table)
    topology.checked(progress.decode(position), names, found, source, target)
