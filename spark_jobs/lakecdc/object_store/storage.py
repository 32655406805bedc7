"""Objects with conditional writes, as the catalog needs them of any storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Answer(Enum):
    """What a storage answers to one attempt of a conditional write."""

    WRITTEN = "written"
    #: the condition does not hold, if this is the answer to the first arrival of the request
    REFUSED = "refused"
    #: nothing was written, and the same request may succeed: another one is at work on the object
    BUSY = "busy"
    #: anything else: the request may have arrived, or may still arrive
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Stored:
    """An object as it was read.

    :param tag: differs from that of any object with another body.
    """

    body: bytes
    tag: str


class Storage(Protocol):
    """A storage of objects by location (``s3://bucket/key``, ``file:///folder/name``), consistent as S3 is.

    A write is one attempt, which no client below repeats. Reads and listings may be repeated. What cannot be read
    raises ``SourceUnavailableError``.
    """

    def read(self, location: str) -> Stored | None:
        """Return an object, or None if there is none."""
        ...

    def exists(self, location: str) -> bool:
        """Return whether there is an object, without its body."""
        ...

    def create(self, location: str, body: bytes) -> Answer:
        """Write an object unless there is one (``If-None-Match: *``)."""
        ...

    def replace(self, location: str, body: bytes, tag: str) -> Answer:
        """Write an object if the one there has a tag (``If-Match``)."""
        ...

    def delete(self, location: str) -> None:
        """Delete an object; nothing happens if there is none."""
        ...

    def list(self, folder: str) -> Iterator[str]:
        """Yield the locations of all objects below a folder (which ends with a slash), in any depth."""
        ...
