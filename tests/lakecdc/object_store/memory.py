"""A storage in memory with scripted faults, a clock that does not wait, and metadata that counts commits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException

from lakecdc.contract.errors import InputError, SourceUnavailableError
from lakecdc.object_store import catalog, conditional_writes, versions
from lakecdc.object_store.storage import Answer, Listed, Stored

#: fault of a request. ``late``: it arrives after later requests; ``doubled``: it arrives twice, and the second answer
#: is returned; ``rejected``: the login has no permission; ``killed``: the process ends before or after it arrives;
#: ``between``: others act before it arrives
FAULTS = (
    "",
    "no request",
    "no answer",
    "doubled",
    "late",
    "busy",
    "rejected",
    "killed before",
    "killed after",
    "between",
)


WAREHOUSE, NAME = "s3://bucket/lake", ("shop", "orders")
FOLDER = f"{WAREHOUSE}/shop/orders"


class KilledError(BaseException):
    """The process is killed here."""


@dataclass
class MemoryStorage:
    """Objects in memory.

    :param faults: faults of the next requests, in order.
    :param between: actions of others at the fault ``between``.
    """

    faults: list[str] = field(default_factory=list)
    between: list[Callable[[], object]] = field(default_factory=list)
    objects: dict[str, tuple[bytes, int, datetime]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)
    _late: list[Callable[[], Answer]] = field(default_factory=list)
    _serial: int = 0

    def read(self, location: str) -> Stored | None:
        self._request("read", location)
        return self._stored(location)

    def exists(self, location: str) -> bool:
        self._request("exists", location)
        return location in self.objects

    def create(self, location: str, body: bytes) -> Answer:
        return self._write("create", location, body, None)

    def replace(self, location: str, body: bytes, tag: str) -> Answer:
        return self._write("replace", location, body, tag)

    def delete(self, location: str) -> None:
        self._request("delete", location, lambda: self.objects.pop(location, None))

    def list(self, prefix: str) -> Iterator[Listed]:
        self._request("list", prefix)
        listed = [(name, *stored) for name, stored in sorted(self.objects.items()) if name.startswith(prefix)]
        return iter([Listed(name, len(body), modified) for name, body, _, modified in listed])

    def settle(self) -> None:
        """Let all pending requests arrive and clear the faults."""
        self.faults.clear()
        self._arrive()

    def _stored(self, location: str) -> Stored | None:
        stored = self.objects.get(location)
        return Stored(stored[0], str(stored[1])) if stored else None

    def _arrive(self) -> None:
        late, self._late = self._late, []
        for request in late:
            request()

    def _next(self, request: str, location: str) -> str:
        self.requests.append((request, location))
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "between" and self.between:
            act, left, self.faults = self.between.pop(), self.faults, []
            act()
            self.faults = left
        if fault == "killed before":
            raise KilledError
        if fault == "rejected":
            raise InputError("the login may not")
        return fault

    def _request(self, request: str, location: str, arrive: Callable[[], object] = lambda: None) -> None:
        fault = self._next(request, location)
        if fault != "no request":
            arrive()
        if fault == "killed after":
            raise KilledError
        if fault in ("no request", "no answer"):
            raise SourceUnavailableError("the answer is lost")
        if fault == "late":
            self._arrive()

    def _write(self, request: str, location: str, body: bytes, tag: str | None) -> Answer:
        def arrive() -> Answer:
            stored = self._stored(location)
            if (stored.tag if stored else None) != tag:
                return Answer.REFUSED
            self._serial += 1
            self.objects[location] = (body, self._serial, datetime.now(UTC))
            return Answer.WRITTEN

        fault = self._next(request, location)
        if fault == "no request":
            return Answer.UNCLEAR
        if fault == "busy":
            return Answer.BUSY
        if fault == "late":
            self._late.append(arrive)
            return Answer.UNCLEAR
        answer = arrive()
        if fault == "killed after":
            raise KilledError
        if fault == "doubled":
            return arrive()
        return Answer.UNCLEAR if fault == "no answer" else answer


class Counting:
    """Metadata as a list of tokens, one added by each commit."""

    def create(self, request: Mapping[str, Any], location: str) -> str:
        return json.dumps({"location": location, "tokens": [], "padding": "-" * 200})

    def apply(
        self, text: str, metadata_location: str, requirements: Sequence[Mapping[str, Any]], updates: Sequence[Any]
    ) -> str:
        metadata = (
            json.loads(text) if text else {"location": updates[0]["location"], "tokens": [], "padding": "-" * 200}
        )
        metadata.pop(conditional_writes.ID, None)
        for each in requirements:
            if each["type"] == "count" and each["value"] != len(metadata["tokens"]):
                raise CommitFailedException("another count")
        for each in updates:
            if each.get("action") == "remove-snapshot-ref":
                metadata["refs"].pop(each["ref-name"])
        metadata["tokens"] += [each["token"] for each in updates if "token" in each]
        return json.dumps(metadata)


def tokens(text: str) -> list[Any]:
    parsed = json.loads(text)["tokens"]
    assert isinstance(parsed, list)
    return parsed


class Clock:
    """A clock that advances only by waiting."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def without_waiting(patch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    time = SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep)
    for module in (conditional_writes, versions, catalog):
        patch.setattr(module, "time", time)
    return clock


def commit(opened: catalog.ObjectCatalog, token: int = 0) -> versions.Version:
    """Commit a change of the table :data:`NAME`."""
    return opened.update_table(NAME, [], [{"token": token}])
