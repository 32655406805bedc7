"""A storage that takes no writes: for an endpoint of reads alone, and for a login that may only read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Never

from lakecdc.object_store.storage import DeniedError, Listed, Storage, Stored


class ReadOnly:
    """Reads of another storage.

    :param refusal: what each write raises.
    """

    def __init__(self, storage: Storage, refusal: DeniedError) -> None:
        self._storage, self._refusal = storage, refusal

    def __str__(self) -> str:
        return str(self._storage)

    def read(self, location: str) -> Stored | None:
        """Return an object, or None if there is none."""
        return self._storage.read(location)

    def exists(self, location: str) -> bool:
        """Return whether there is an object."""
        return self._storage.exists(location)

    def list(self, prefix: str) -> Iterator[Listed]:
        """Yield all objects whose location begins with a prefix."""
        return self._storage.list(prefix)

    def create(self, location: str, body: bytes) -> Never:
        """Refuse to write."""
        raise self._refusal

    def replace(self, location: str, body: bytes, tag: str) -> Never:
        """Refuse to write."""
        raise self._refusal

    def delete(self, location: str) -> Never:
        """Refuse to delete."""
        raise self._refusal
