"""Stores that check a condition and write later, or give wrong answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakecdc.contract.errors import SourceUnavailableError, UnsupportedError
from lakecdc.object_store.local import LocalStorage
from lakecdc.object_store.proof import prove
from lakecdc.object_store.storage import Answer, Listed


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


class RacedCreates(LocalStorage):
    def create(self, location: str, body: bytes) -> Answer:
        if self.exists(location):
            return Answer.REFUSED
        time.sleep(0.01)
        Path(location).parent.mkdir(parents=True, exist_ok=True)
        Path(location).write_bytes(body)
        return Answer.WRITTEN


class RacedReplaces(LocalStorage):
    def replace(self, location: str, body: bytes, tag: str) -> Answer:
        stored = self.read(location)
        if stored is None or stored.tag != tag:
            return Answer.REFUSED
        time.sleep(0.01)
        Path(location).write_bytes(body)
        return Answer.WRITTEN


class WritesWhatItRefuses(LocalStorage):
    def create(self, location: str, body: bytes) -> Answer:
        answer = super().create(location, body)
        Path(location).write_bytes(body)
        return answer


class OldListings(LocalStorage):
    def list(self, prefix: str) -> Iterator[Listed]:
        return iter(())


@pytest.mark.parametrize(
    ("kind", "did"),
    [
        (RacedCreates, r"let \d+ of 16 writers at once believe that they created the object"),
        (RacedReplaces, r"let \d+ of 16 writers at once believe that they replaced the object"),
        (WritesWhatItRefuses, "wrote what it had refused"),
        (OldListings, "did not list a written object at once"),
    ],
)
def test_a_store_that_loses_writes_is_refused(tmp_path: Path, kind: type[LocalStorage], did: str) -> None:
    with pytest.raises(UnsupportedError, match=f"commits would be lost: .* {did}"):
        prove(kind(str(tmp_path)), str(tmp_path))
    assert files(tmp_path) == []


class Busy(LocalStorage):
    """A store that first answers 409, a number of times per write."""

    def __init__(self, folder: str, times: int) -> None:
        super().__init__(folder)
        self.times, self.attempts = times, dict[bytes, int]()

    def create(self, location: str, body: bytes) -> Answer:
        write = location.encode() + body
        self.attempts[write] = self.attempts.get(write, 0) + 1
        return Answer.BUSY if self.attempts[write] <= self.times else super().create(location, body)


def test_requests_to_a_busy_store_are_retried(tmp_path: Path) -> None:
    prove(Busy(str(tmp_path), 2), str(tmp_path), rounds=1)
    assert [path.name for path in files(tmp_path)] == ["store.json"]


def test_a_store_that_stays_busy_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="gave no clear answer"):
        prove(Busy(str(tmp_path), 10**6), str(tmp_path))
