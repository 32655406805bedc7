"""Objects with conditional writes, as the catalog needs them of any storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol

from lakecdc.contract.errors import InputError


class DeniedError(InputError):
    """The login may not do that to the storage, or it was opened for reads alone; nothing was written."""


class Answer(Enum):
    """The answer of a storage to one attempt of a conditional write."""

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


@dataclass(frozen=True)
class Listed:
    """An object as a listing tells it.

    :param size: in bytes.
    :param modified: when it was last written, by the storage's clock (UTC).
    """

    location: str
    size: int
    modified: datetime


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

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield all objects whose location begins with a prefix, in any depth; nothing if there is none."""
        ...
