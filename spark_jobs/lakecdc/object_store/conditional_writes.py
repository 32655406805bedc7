"""Conditional writes whose answer may be lost: the object itself shows whether a write arrived.

An attempt without a clear yes may have arrived, and a client or proxy may have repeated it and been refused. So each
document has the id of its write, and a replaced one passes on the ids of earlier writes. After anything but a yes the
object is read. If it has the id, the write arrived. If it is another document, the write never arrives, because its
condition no longer holds. If nothing has changed, the same write is sent again.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

from lakecdc.contract.errors import LakecdcError
from lakecdc.object_store.storage import Answer, Storage, Stored

#: member of a document: the id of its write
ID = "lakecdc-commit-id"
#: member of a document that replaces others: ids of the writes before it, the newest last
EARLIER = "lakecdc-earlier-ids"
#: seconds for all attempts of one write
LONGEST = 60.0
_LONGEST_PAUSE = 2.0


def create(storage: Storage, location: str, body: bytes, write: str, longest: float = LONGEST) -> bool:
    """Write a document where there is none.

    :param write: its id, which the body contains.
    :param longest: seconds after which no further attempt is made.
    :return: false if there is another document.
    :raises pyiceberg.exceptions.CommitStateUnknownException: nothing tells whether it arrived.
    """

    def judge(stored: Stored | None) -> bool | None:
        return None if stored is None else has_write(stored, write)

    return _settled(lambda: storage.create(location, body), lambda: judge(storage.read(location)), location, longest)


def replace(storage: Storage, location: str, body: bytes, write: str, tag: str) -> bool:
    """Write a document in the place of another one.

    :param tag: of the document that is there.
    :return: false if there is yet another one.
    :raises pyiceberg.exceptions.CommitStateUnknownException: nothing tells whether it arrived.
    """

    def judge(stored: Stored | None) -> bool | None:
        if stored is None:
            return False
        return None if stored.tag == tag else has_write(stored, write)

    return _settled(
        lambda: storage.replace(location, body, tag), lambda: judge(storage.read(location)), location, LONGEST
    )


def _settled(attempt: Callable[[], Answer], judge: Callable[[], bool | None], location: str, longest: float) -> bool:
    from pyiceberg.exceptions import CommitStateUnknownException

    begun, pause, first = time.monotonic(), 0.05, True
    while True:
        try:
            if attempt() is Answer.WRITTEN:
                return True
        except LakecdcError:
            # it did nothing; but one before it may have arrived
            if first:
                raise
        first = False
        try:
            verdict = judge()
        except LakecdcError:
            # an object that cannot be read proves nothing
            verdict = None
        if verdict is not None:
            return verdict
        if time.monotonic() - begun + pause > longest:
            raise CommitStateUnknownException(f"It is unknown whether {location} was written.")
        time.sleep(random.uniform(pause / 2, pause))
        pause = min(2 * pause, _LONGEST_PAUSE)


def has_write(stored: Stored, write: str) -> bool:
    """Return whether a document is that of a write, or one that followed it."""
    document = parsed(stored)
    return document.get(ID) == write or write in document.get(EARLIER, ())


def parsed(stored: Stored) -> dict[str, Any]:
    """Return an object's JSON; empty if it has none."""
    try:
        document = json.loads(stored.body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
