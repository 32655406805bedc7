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
#: approximate number of records of a sample
SAMPLE = 200
# a piece with fewer offsets is not worth a task
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

    def topics(self, matches: Callable[[str], bool]) -> dict[str, Topic]:
        """Return the matching topics; raise an error if the cluster does not answer or refuses the login."""

    def offsets(self, places: Iterable[Place], at: At) -> dict[Place, int]:
        """Return an offset of each partition.

        :param at: ``earliest``: the lowest offset; ``latest``: the offset after the last record, or after the last one
            before an open transaction; a time in milliseconds since 1970: the first record that is not older, -1 if
            there is none.
        """


class Reader(Cluster, Protocol):
    """A client of a cluster. Clients differ in where they run and how they log in, but read the same bytes."""

    def messages(self, ranges: Sequence[Range]) -> DataFrame:
        """Return the messages of one or more ranges as a message frame."""

    def scan(self, ranges: Sequence[Range]) -> Scan | None:
        """Return a scan by which tasks read the messages themselves; None if only Spark can read them."""

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
