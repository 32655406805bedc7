"""Interface of the clients of a Kafka cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.ingest.engine.run import Scan

#: topic and partition
Place = tuple[str, int]
At = Literal["earliest", "latest"] | int
Headers = Sequence[tuple[str, str | bytes | None]] | None
#: key, value and headers
Record = tuple[bytes | None, bytes | None, Headers]
#: records of a sample, at most about
SAMPLE = 200
# below this many offsets a task of its own is not worth its start
_SMALLEST_PIECE = 20_000


@dataclass(frozen=True)
class Topic:
    """A topic as it is now.

    :param id: changes when a topic is deleted and recreated; empty with brokers older than 2.8.
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

    @property
    def place(self) -> Place:
        return self.topic, self.partition


def count(ranges: Iterable[Range]) -> int:
    return sum(r.end - r.start for r in ranges)


class Cluster(Protocol):
    """The admin side of a cluster."""

    def topics(self, wanted: Callable[[str], bool]) -> dict[str, Topic]:
        """Return the wanted topics that exist; raise an error if the cluster does not answer or refuses the login."""

    def offsets(self, places: Iterable[Place], at: At) -> dict[Place, int]:
        """Return an offset of each partition.

        :param at: ``earliest`` means the lowest offset that it holds; ``latest`` the one after its last, or after its
            last before an open transaction; a time in milliseconds since 1970 its first record that is not older, -1 if
            there is none.
        """


class Reader(Cluster, Protocol):
    """A client of a cluster. Clients differ in where they run and how they log in, but deliver equal bytes."""

    def messages(self, ranges: Sequence[Range]) -> DataFrame:
        """Return the messages of ranges, at least one, as a message frame."""

    def scan(self, ranges: Sequence[Range]) -> Scan | None:
        """Return the same messages for tasks that read them themselves; None if only Spark can."""

    def sample(self, ranges: Sequence[Range]) -> list[Record]:
        """Return records from the beginning of each range, about ``SAMPLE`` in all."""

    def close(self) -> None:
        """Close connections."""


def split(ranges: Sequence[Range], parallelism: int) -> list[Range]:
    """Cut ranges into about ``parallelism`` pieces of similar size."""
    size = max(_SMALLEST_PIECE, -(-count(ranges) // max(1, parallelism)))
    return [
        Range(r.topic, r.partition, low, min(low + size, r.end)) for r in ranges for low in range(r.start, r.end, size)
    ]
