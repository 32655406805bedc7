"""Conditional writes for a store that has none: a database row names the current body of an object.

The body is written first, under a name that is used once. One conditional write of the row is the commit, so a writer
that paused in between sees that the row has changed. The object itself is a copy for readers by path, written last.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Protocol

from lakecdc.contract.errors import LakecdcError
from lakecdc.object_store.names import CATALOG
from lakecdc.object_store.rows import Row, Rows
from lakecdc.object_store.storage import Answer, Listed, Storage, Stored

log = logging.getLogger(__name__)

#: prefix of the tag of an object without a row, which is older or was written by others
_NO_ROW = "no row "


class Files(Storage, Protocol):
    """A storage that can also write without a condition."""

    def put(self, location: str, body: bytes) -> None:
        """Write an object unconditionally."""


class RowStorage:
    """A storage whose writes exclude each other by rows of a database.

    :param warehouse: location above the bodies.
    """

    def __init__(self, files: Files, rows: Rows, warehouse: str) -> None:
        self._files, self._rows = files, rows
        self._bodies = f"{warehouse.rstrip('/')}/{CATALOG}/bodies/"

    def __str__(self) -> str:
        return f"{self._files} with {self._rows}"

    def read(self, location: str) -> Stored | None:
        while (row := self._rows.read(location)) is not None:
            # a body is deleted once another one has replaced it
            if (stored := self._files.read(row.body)) is not None:
                return Stored(stored.body, row.tag)
            if self._rows.read(location) == row:
                return None
        file = self._files.read(location)
        return Stored(file.body, _NO_ROW + file.tag) if file else None

    def exists(self, location: str) -> bool:
        return self._rows.read(location) is not None or self._files.exists(location)

    def create(self, location: str, body: bytes) -> Answer:
        return Answer.REFUSED if self.exists(location) else self._write(location, body, None)

    def replace(self, location: str, body: bytes, tag: str) -> Answer:
        if not tag.startswith(_NO_ROW):
            return self._write(location, body, tag)
        current = self.read(location)
        return self._write(location, body, None) if current is not None and current.tag == tag else Answer.REFUSED

    def delete(self, location: str) -> None:
        row = self._rows.read(location)
        self._files.delete(location)
        if row is not None:
            self._rows.delete(location)
            self._files.delete(row.body)

    def list(self, prefix: str) -> Iterator[Listed]:
        rows = {location: Listed(location, row.size, row.time) for location, row in self._rows.list(prefix)}
        yield from rows.values()
        for each in self._files.list(prefix):
            if each.location not in rows and not each.location.startswith(self._bodies):
                yield each

    def remove_bodies(self, before: datetime) -> int:
        """Remove bodies from before a time that no row names, because their writers have died; return their number."""
        left = {each.location for each in self._files.list(self._bodies) if each.modified < before}
        if left:
            # read after the bodies, so that each live one has its row
            left.difference_update(self._rows.bodies())
        for body in left:
            self._files.delete(body)
        return len(left)

    def _write(self, location: str, body: bytes, tag: str | None) -> Answer:
        former = self._rows.read(location)
        row = Row(str(uuid.uuid4()), f"{self._bodies}{uuid.uuid4()}", len(body), int(time.time()))
        self._files.put(row.body, body)
        answer = self._rows.write(location, row, tag)
        if answer is Answer.REFUSED:
            self._files.delete(row.body)
        elif answer is Answer.WRITTEN:
            self._copy(location, body, row)
            if former is not None:
                self._forget(former)
        return answer

    def _copy(self, location: str, body: bytes, row: Row) -> None:
        """Write the copy for readers by path; overwrite those of slower writers until the row's own is there."""
        try:
            while True:
                self._files.put(location, body)
                newest = self._rows.read(location)
                if newest is None or newest == row:
                    return
                stored = self._files.read(newest.body)
                if stored is not None:
                    row, body = newest, stored.body
        except LakecdcError as error:
            log.warning("%s: readers by path see an older version: %s", location, error)

    def _forget(self, former: Row) -> None:
        try:
            self._files.delete(former.body)
        except LakecdcError as error:
            log.warning("%s was left: %s", former.body, error)
