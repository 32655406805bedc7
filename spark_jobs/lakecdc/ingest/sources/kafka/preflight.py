"""What a run would refuse of topics, and whether they have anything new, asked before Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError, LakecdcError
from lakecdc.contract.secrets import resolve
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.ingest.sources.kafka import progress, topology
from lakecdc.ingest.sources.kafka.librdkafka import LibrdkafkaCluster
from lakecdc.metadata.source_state import SourceState, may_be_idle

if TYPE_CHECKING:
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
    quiet: dict[str, Position] = {}
    for target in spec.targets:
        try:
            if (position := _position_if_quiet(spec, found, target, (positions or {}).get(target.table))) is not None:
                quiet[target.table] = position
        except LakecdcError as error:
            refused.append(error)
    if refused and len(refused) == len(spec.targets):
        raise refused[0]
    return SourceState(idle=quiet) if may_be_idle(spec, quiet) else SourceState()


def _position_if_quiet(spec: JobSpec, found: Topology, target: Target, position: Position | None) -> Position | None:
    """Return where a target stands after the run if the topics have nothing new for it; else None.

    :param position: where it stands; None if that is not known, or it was never fed.
    :raises InputError: it cannot be fed.
    """
    source = spec.source
    assert isinstance(source, KafkaSource)
    topics = topology.topics_of(target, source, list(found.topics), single=len(spec.targets) == 1)
    if position is None:
        return None
    if position.source != progress.SOURCE:
        raise InputError(f"It has been fed from a source of type {position.source!r}.", table=target.table)
    before = progress.decode(position)
    checked = topology.checked(before, topics, found, source, target)
    after = topology.extended(checked, topics, found, first=False)
    left = [place for place, offset in after.next.items() if place[0] in topics and found.ends[place] > offset]
    if left or after != before or found.through is None:
        return None
    return position.idle_until(found.through)
