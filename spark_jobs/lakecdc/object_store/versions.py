"""The versions of one table's metadata, ``vN.metadata.json``, and the hint for readers by path.

The newest N is the table. A version is created only if none exists, which makes it a compare and swap on N that no late
writer can pass: a number is never freed while a writer may still hold the version before it. Superseded versions become
stubs in place, and stubs are removed after thirty days.
"""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from lakecdc.contract.errors import LakecdcError, SourceUnavailableError
from lakecdc.object_store.conditional_writes import ID, LONGEST, create, parsed, replace
from lakecdc.object_store.storage import Answer, DeniedError, Listed, Storage, Stored

log = logging.getLogger(__name__)

#: seconds from the read of a version to the last attempt to write the next one
DEADLINE = 600.0
#: versions younger than this stay whole, for readers that are about to read them
YOUNGEST_STUB = timedelta(hours=1)
#: stubs older than this are removed: by :data:`DEADLINE` no writer can hold the versions that they replaced
OLDEST_STUB = timedelta(days=30)
#: versions before the newest whose numbers stay used, regardless of this machine's clock
KEPT_NUMBERS = 100
DROPPED, SUPERSEDED = "lakecdc-dropped", "lakecdc-superseded"
HINT = "version-hint.text"
#: message of a commit that has arrived, but whose freed files readers by path still need
HINT_BEHIND = f"{HINT} stays behind: delete no files"
_NAME = re.compile(r"v(\d+)\.metadata\.json")
_ATTEMPTS = 5
# a stub has little more than its id
_STUB_SIZE = 200


@dataclass(frozen=True)
class Version:
    """One version of a table's metadata.

    :param location: of its file.
    :param text: its JSON.
    :param read_at: ``time.monotonic()`` before it was read.
    """

    number: int
    location: str
    text: str
    read_at: float


@dataclass(frozen=True)
class Dropped:
    """The last version of a table that was dropped."""

    number: int


class Versions:
    """The metadata of one table."""

    def __init__(self, storage: Storage, location: str) -> None:
        self._storage = storage
        self._folder = f"{location.rstrip('/')}/metadata/"

    def location_of(self, number: int) -> str:
        """Return where a version is."""
        return f"{self._folder}v{number}.metadata.json"

    def head(self) -> Version | Dropped | None:
        """Read the newest version, or return None. Correct a wrong hint if the login may write.

        :raises SourceUnavailableError: it cannot be read.
        """
        for _ in range(_ATTEMPTS):
            read_at, hinted = time.monotonic(), self._hinted()
            stored = self._storage.read(self.location_of(hinted)) if hinted else None
            known = hinted if stored is not None else max((number for number, _ in self._listed()), default=0)
            number = self._newest(known)
            if number == 0:
                return None
            if number != hinted or stored is None:
                stored = self._storage.read(self.location_of(number))
            if hinted != number:
                self.move_hint(number, wrong=hinted)
            # a stub was the newest one a moment ago
            if stored is not None and (head := self._judged(number, stored, read_at)) is not None:
                return head
        raise SourceUnavailableError(f"The newest version of the metadata in {self._folder} cannot be found.")

    def _judged(self, number: int, stored: Stored, read_at: float) -> Version | Dropped | None:
        if len(stored.body) <= _STUB_SIZE:
            document = parsed(stored)
            if document.get(DROPPED):
                return Dropped(number)
            if document.get(SUPERSEDED):
                return None
        return Version(number, self.location_of(number), stored.body.decode(), read_at)

    def commit(self, base: int, text: str, read_at: float | None = None, write: str = "") -> Version | None:
        """Write the version that follows another one.

        :param base: number of the version that the text was made from; 0 for a new table.
        :param text: the new metadata, without the id of a write.
        :param read_at: ``time.monotonic()`` before that version was read.
        :param write: the id of this one; a new one if empty.
        :return: None if another writer was first, or may have been because that version was read too long ago.
        :raises pyiceberg.exceptions.CommitStateUnknownException: it is unknown whether it was written.
        """
        now = time.monotonic()
        if read_at is not None and now - read_at > DEADLINE:
            # by now the number may have been used and removed, or the folder may have another table
            return None
        number, write = base + 1, write or str(uuid.uuid4())
        body = f'{{"{ID}":"{write}",{text.lstrip().removeprefix("{")}'
        left = DEADLINE - (now - read_at) if read_at is not None else DEADLINE
        if not create(self._storage, self.location_of(number), body.encode(), write, min(left, LONGEST)):
            return None
        self.move_hint(number)
        return Version(number, self.location_of(number), body, now)

    def drop(self) -> None:
        """Write the last version, after which none can follow; do nothing if there is one."""
        while isinstance(head := self.head(), Version):
            write = str(uuid.uuid4())
            body = json.dumps({ID: write, DROPPED: True}).encode()
            if create(self._storage, self.location_of(head.number + 1), body, write):
                self.move_hint(head.number + 1)
                return

    def move_hint(self, number: int, wrong: int = 0) -> bool:
        """Move the hint up to a version or beyond; return false if that fails.

        Readers by path that follow a stale hint see an older version of the table.

        :param wrong: present hint to a version that never existed, from another writer or an older copy.
        """
        location, body = self._folder + HINT, str(number).encode()
        try:
            for _ in range(_ATTEMPTS):
                stored = self._storage.read(location)
                if stored is not None and _number(stored) >= number and _number(stored) != wrong:
                    return True
                answer = (
                    self._storage.create(location, body)
                    if stored is None
                    else self._storage.replace(location, body, stored.tag)
                )
                if answer is Answer.WRITTEN:
                    return True
        except DeniedError:
            # the next writer moves it
            return False
        except LakecdcError as error:
            log.warning("%s does not name version %d: %s", location, number, error)
        return False

    def trim(self, keep: int, now: datetime | None = None) -> int:
        """Replace superseded versions by stubs, and remove stubs older than thirty days and a hundred versions.

        :param keep: number of the newest versions that stay whole.
        :return: number of changed objects.
        """
        now, head = now or datetime.now(UTC), self.head()
        if head is None or not self.move_hint(head.number):
            return 0
        changed = 0
        for number, listed in self._listed():
            age = now - listed.modified
            if number >= head.number:
                continue
            if listed.size <= _STUB_SIZE:
                if age > OLDEST_STUB and number < head.number - KEPT_NUMBERS:
                    self._storage.delete(listed.location)
                    changed += 1
            elif number <= head.number - keep and age > YOUNGEST_STUB:
                changed += self._supersede(listed.location)
        return changed

    def wipe(self) -> int:
        """Replace all versions but the newest by stubs at once, to remove their content; return how many.

        :raises pyiceberg.exceptions.CommitStateUnknownException: one may still have its content.
        """
        head = self.head()
        older = [each for number, each in self._listed() if head is not None and number < head.number]
        return sum(self._supersede(each.location) for each in older if each.size > _STUB_SIZE)

    def contents(self) -> Iterator[str]:
        """Yield the locations of superseded versions that still have their content."""
        listed = list(self._listed())
        newest = max((number for number, _ in listed), default=0)
        yield from (each.location for number, each in listed if number < newest and each.size > _STUB_SIZE)

    def _supersede(self, location: str) -> bool:
        stored = self._storage.read(location)
        if stored is None:
            return False
        write = parsed(stored).get(ID) or str(uuid.uuid4())
        # it keeps the id of its commit, which a writer may still look for
        body = json.dumps({ID: write, SUPERSEDED: True}).encode()
        return stored.body != body and replace(self._storage, location, body, write, stored.tag)

    def _hinted(self) -> int:
        stored = self._storage.read(self._folder + HINT)
        return _number(stored) if stored is not None else 0

    def _newest(self, known: int) -> int:
        """Return the newest number; numbers above the hint have no gap, because none of them was ever removed.

        :param known: an existing number, or 0.
        """
        if known == 0:
            return 0
        step = 1
        while self._exists(known + step):
            known, step = known + step, 2 * step
        # it is at least known, and below known + step
        while step > 1:
            step //= 2
            if self._exists(known + step):
                known += step
        return known

    def _exists(self, number: int) -> bool:
        return self._storage.exists(self.location_of(number))

    def _listed(self) -> Iterator[tuple[int, Listed]]:
        for listed in self._storage.list(f"{self._folder}v"):
            number = number_of(listed.location)
            if number is not None and listed.location == self.location_of(number):
                yield number, listed


def number_of(location: str) -> int | None:
    """Return the number of a version by the name of its file; None for another file."""
    match = _NAME.fullmatch(location.rpartition("/")[2])
    return int(match[1]) if match else None


def is_stub(location: str, size: int) -> bool:
    """Check whether a file is a version without content, by its name and size."""
    return number_of(location) is not None and size <= _STUB_SIZE


def _number(stored: Stored) -> int:
    try:
        return int(stored.body)
    except ValueError:
        return 0
