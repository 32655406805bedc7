"""What a run wants of a Kafka cluster, whichever client asks it and reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.engine.run import Scan

#: topic and partition
Place = tuple[str, int]
Headers = Sequence[tuple[str, str | bytes | None]] | None
#: key, value and headers
Record = tuple[bytes | None, bytes | None, Headers]
#: records of a sample, at most about
SAMPLE = 200
# below this many offsets a task of its own is not worth its start
_SMALLEST_PIECE = 20_000


@dataclass(frozen=True)
class Topic:
    """A topic as the cluster has it now.

    :param id: changes when a topic is deleted and made again; empty where brokers older than 2.8 know none.
    :param partitions: number of partitions.
    """

    name: str
    id: str
    partitions: int


@dataclass(frozen=True)
class Range:
    """Offsets of one partition, ``start`` included, ``end`` not."""

    topic: str
    partition: int
    start: int
    end: int


class Cluster(Protocol):
    """The admin side of a cluster: topics with their ids, and offsets."""

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, Topic]:
        """Return the topics that exist and are wanted.

        :raises SourceUnavailableError: if the cluster does not answer or refuses the login.
        """

    def beginnings(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the lowest offset that each partition holds."""

    def ends(self, places: Iterable[Place]) -> dict[Place, int]:
        """Return the offset behind the last one that each partition holds; open transactions end it earlier."""

    def offsets_at(self, places: Iterable[Place], milliseconds: int) -> dict[Place, int]:
        """Return the first offset of each partition whose record is not older than a moment, -1 where there is none.

        :param milliseconds: since 1970.
        """


class Reader(Protocol):
    """One client's way to a cluster.

    Readers differ in where they run and how they log in; what they deliver is the same to the byte, so that a table may
    change from one to another.
    """

    @property
    def cluster(self) -> Cluster:
        """The admin side."""

    def messages(self, ranges: Sequence[Range]) -> DataFrame:
        """Return the messages of some ranges as a message frame.

        :param ranges: not empty.
        """

    def scan(self, ranges: Sequence[Range]) -> Scan | None:
        """Return the same messages for tasks that read them by themselves; None if only Spark can."""

    def sample(self, ranges: Sequence[Range]) -> list[Record]:
        """Return some records from the beginning of each range, about ``SAMPLE`` in all."""

    def close(self) -> None:
        """Let go of connections."""


def split(ranges: Sequence[Range], parallelism: int) -> list[Range]:
    """Cut ranges into pieces of about the same size, so that all cores have work.

    :param parallelism: pieces to aim at.
    """
    total = sum(r.end - r.start for r in ranges)
    size = max(_SMALLEST_PIECE, -(-total // max(1, parallelism)))
    return [
        Range(r.topic, r.partition, low, min(low + size, r.end)) for r in ranges for low in range(r.start, r.end, size)
    ]
