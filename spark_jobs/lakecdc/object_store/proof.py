"""Proof that a store keeps the conditions of writes, before a warehouse in it is written for the first time.

A store that ignores them, or does not check and write atomically, reports success and loses commits.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from threading import Barrier
from typing import Any

from lakecdc.contract.errors import LakecdcError, SourceUnavailableError, UnsupportedError
from lakecdc.object_store.names import CATALOG
from lakecdc.object_store.storage import Answer, Storage

_WRITERS = 16
#: of each race, before the first use
ROUNDS = 3
_BUSY_TRIES, _BUSY_SECONDS = 50, 0.02
_DEAD_TAG = '"00000000000000000000000000000000"'
_PROVEN = [
    "a second create is refused",
    "a replace of a missing object is refused",
    "a replace with a tag that is not the object's is refused, also with its former one",
    "refused writes leave nothing, written objects are read and listed at once",
    f"one of {_WRITERS} creates at once wins",
    f"one of {_WRITERS} replaces at once wins",
]
_proven: set[tuple[str, str]] = set()
_one = threading.Lock()


def prove(storage: Storage, warehouse: str, rounds: int = ROUNDS) -> None:
    """Test a store's conditional writes unless a document in the warehouse records that they passed.

    :param warehouse: location.
    :param rounds: of the races.
    :raises UnsupportedError: the store does not keep conditions; the message names what it did.
    :raises SourceUnavailableError: it gave no clear answer.
    """
    store, folder = str(storage), f"{warehouse.rstrip('/')}/{CATALOG}"
    with _one:
        if (store, folder) in _proven:
            return
        # a warehouse may have been copied, and a proof of another store proves nothing
        if store not in _recorded(storage, folder):
            proven = try_conditions(storage, warehouse, rounds)
            _record(storage, folder, {"proven": proven, "rounds": rounds, "at": f"{datetime.now(UTC):%FT%TZ}"})
        _proven.add((store, folder))


def try_conditions(storage: Storage, warehouse: str, rounds: int = ROUNDS) -> list[str]:
    """Test a store's conditional writes regardless of earlier proofs, and return what was proven; see :func:`prove`."""
    with _probes(storage, f"{warehouse.rstrip('/')}/{CATALOG}/probe-{uuid.uuid4().hex}") as new:
        _one_after_another(storage, new)
        for _ in range(rounds):
            location = new()
            _race(storage, location, partial(storage.create, location), "created the object")
            location = new()
            _expect(storage, Answer.WRITTEN, "refused to create an object", location, b"before")
            tag = _read(storage, location, b"before")
            _race(storage, location, partial(storage.replace, location, tag=tag), "replaced the object")
    return list(_PROVEN)


def _recorded(storage: Storage, folder: str) -> dict[str, Any]:
    stored = storage.read(_document(folder))
    with suppress(ValueError, KeyError, TypeError):
        return dict(json.loads(stored.body)["stores"]) if stored else {}
    return {}


def _record(storage: Storage, folder: str, entry: dict[str, Any]) -> None:
    """Add a store to the document; if another process is faster, the next one to open the warehouse adds it."""
    stores = {**_recorded(storage, folder), str(storage): entry}
    body = json.dumps({"stores": stores}, indent=1).encode()
    there = storage.read(_document(folder))
    location = _document(folder)
    _clear(lambda: storage.replace(location, body, there.tag) if there else storage.create(location, body))


def _document(folder: str) -> str:
    return f"{folder}/store.json"


@contextmanager
def _probes(storage: Storage, folder: str) -> Iterator[Callable[[], str]]:
    """Provide locations of test objects, and delete these at the end."""
    used: list[str] = []

    def new() -> str:
        used.append(f"{folder}/{len(used)}")
        return used[-1]

    try:
        yield new
    except BaseException:
        # the result matters more than leftovers
        for location in used:
            with suppress(LakecdcError):
                storage.delete(location)
        raise
    for location in used:
        storage.delete(location)


def _one_after_another(storage: Storage, new: Callable[[], str]) -> None:
    location, missing = new(), new()
    _expect(storage, Answer.REFUSED, "replaced an object that did not exist", missing, b"0", _DEAD_TAG)
    _expect(storage, Answer.WRITTEN, "refused to create an object", location, b"1")
    _expect(storage, Answer.REFUSED, "created an object twice", location, b"2")
    former = _read(storage, location, b"1")
    _expect(storage, Answer.REFUSED, "replaced an object despite a wrong tag", location, b"3", _DEAD_TAG)
    _read(storage, location, b"1")
    _expect(storage, Answer.WRITTEN, "refused to replace an object by its tag", location, b"4", former)
    if _read(storage, location, b"4") == former:
        raise _refusal(storage, "gave one tag to two contents")
    _expect(storage, Answer.REFUSED, "replaced an object by its former tag", location, b"5", former)
    _read(storage, location, b"4")
    if [each.location for each in storage.list(location)] != [location] or storage.exists(missing):
        raise _refusal(storage, "did not list a written object at once")


def _race(storage: Storage, location: str, write: Callable[[bytes], Answer], did: str) -> None:
    together = Barrier(_WRITERS)

    def run(body: bytes) -> Answer:
        together.wait()
        return _clear(lambda: write(body))

    bodies = [f"writer {number}".encode() for number in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as pool:
        answers = list(pool.map(run, bodies))
    count = Counter(answers)
    if count[Answer.WRITTEN] > 1:
        raise _refusal(storage, f"let {count[Answer.WRITTEN]} of {_WRITERS} writers at once believe that they {did}")
    if count[Answer.UNCLEAR] or count[Answer.BUSY]:
        raise _unclear(storage)
    if not count[Answer.WRITTEN]:
        raise _refusal(storage, f"refused all of {_WRITERS} writers at once, so that none {did}")
    _read(storage, location, bodies[answers.index(Answer.WRITTEN)])


def _expect(storage: Storage, answer: Answer, otherwise: str, location: str, body: bytes, tag: str = "") -> None:
    """Write an object, by its tag if one is given, and compare the answer."""
    got = _clear(lambda: storage.replace(location, body, tag) if tag else storage.create(location, body))
    if got in (Answer.UNCLEAR, Answer.BUSY):
        raise _unclear(storage)
    if got is not answer:
        raise _refusal(storage, otherwise)


def _clear(write: Callable[[], Answer]) -> Answer:
    """Return the answer to a write, repeated while the store reports a concurrent one."""
    for _ in range(_BUSY_TRIES):
        answer = write()
        if answer is not Answer.BUSY:
            break
        time.sleep(_BUSY_SECONDS)
    return answer


def _read(storage: Storage, location: str, body: bytes) -> str:
    """Return the tag of an object, which must have this body."""
    stored = storage.read(location)
    if stored is None or stored.body != body:
        raise _refusal(storage, "did not return a written object at once, or wrote what it had refused")
    return stored.tag


def _refusal(storage: Storage, did: str) -> UnsupportedError:
    return UnsupportedError(
        f"The store does not keep the conditions of writes, so commits would be lost: {storage} {did}.",
        hint="Use a store with atomic conditional writes (If-None-Match, If-Match), a newer version of this one, or "
        "another type of catalog.",
    )


def _unclear(storage: Storage) -> SourceUnavailableError:
    return SourceUnavailableError(
        f"Cannot determine whether the store keeps the conditions of writes: {storage} gave no clear answer.",
        hint="Check the store and the network, then retry.",
    )
