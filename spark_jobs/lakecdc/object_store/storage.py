"""Interfaces that the catalog needs: objects with conditional writes, and code that makes new table metadata."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Never, Protocol

from lakecdc.contract.errors import InputError

#: an object of Iceberg's REST interface: a requirement, an update, a request
Document = Mapping[str, Any]


class DeniedError(InputError):
    """The login lacks a right on the storage, or it was opened for reads only; nothing was written.

    Remedy: Grant the right that the message names, as docs/operations/object-store.md lists them.
    """


class Answer(Enum):
    """The answer of a storage to one attempt of a conditional write."""

    WRITTEN = "written"
    #: the condition does not hold, if this answers the first arrival of the request
    REFUSED = "refused"
    #: nothing was written because of a concurrent request; the same request may succeed
    BUSY = "busy"
    #: anything else: the request may have arrived, or may still arrive
    UNCLEAR = "unclear"


@dataclass(frozen=True)
class Stored:
    """An object that was read.

    :param tag: differs from that of any object with another body.
    """

    body: bytes
    tag: str


@dataclass(frozen=True)
class Listed:
    """An object in a listing.

    :param size: in bytes.
    :param modified: when it was last written, by the storage's clock (UTC).
    """

    location: str
    size: int
    modified: datetime


class Storage(Protocol):
    """A storage of objects by location (``s3://bucket/key``, ``file:///folder/name``), as consistent as S3.

    A write is one attempt, which no client below repeats. Reads and listings may be repeated. What cannot be read
    raises ``SourceUnavailableError``.
    """

    def read(self, location: str) -> Stored | None:
        """Return an object, or None if there is none."""

    def exists(self, location: str) -> bool:
        """Check whether there is an object, without reading its body."""

    def create(self, location: str, body: bytes) -> Answer:
        """Write an object if none exists (``If-None-Match: *``)."""

    def replace(self, location: str, body: bytes, tag: str) -> Answer:
        """Write an object if the present one has a tag (``If-Match``)."""

    def delete(self, location: str) -> None:
        """Delete an object; nothing happens if there is none."""

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield all objects whose location begins with a prefix, in any depth; nothing if there is none."""


class ReadOnly:
    """Wrap a storage and refuse writes, for read-only endpoints and logins.

    :param refusal: what each write raises.
    """

    def __init__(self, storage: Storage, refusal: DeniedError) -> None:
        self._storage, self._refusal = storage, refusal
        self.read, self.exists, self.list = storage.read, storage.exists, storage.list

    def __str__(self) -> str:
        return str(self._storage)

    def _refuse(self, *_: object, **__: object) -> Never:
        raise self._refusal

    create = replace = delete = _refuse


class Applier(Protocol):
    """Iceberg's core in a JVM, or pyiceberg; both get and return a table's metadata as the text of its JSON."""

    def create(self, request: Document, location: str) -> str:
        """Return the first metadata of a table.

        :param request: a ``CreateTableRequest``.
        """

    def apply(
        self, text: str, metadata_location: str, requirements: Sequence[Document], updates: Sequence[Document]
    ) -> str:
        """Return a table's metadata with updates; the unchanged text if they change nothing.

        :param text: its current metadata; empty for a table that the updates create (``assert-create``).
        :param metadata_location: where that is, which becomes an entry of the new ``metadata-log``; empty likewise.
        :raises pyiceberg.exceptions.CommitFailedException: a requirement does not hold.
        :raises UnsupportedError: this code would drop a part of the metadata, which the message names.
        :raises InputError: an update is not valid.
        """


def check_creation(requirements: Sequence[Document]) -> None:
    """Check that updates that create a table have the requirement ``assert-create`` and no other."""
    if not requirements or any(requirement.get("type") != "assert-create" for requirement in requirements):
        raise InputError("Updates that create a table need assert-create as their only requirement.")
