"""Random histories of a table, their Debezium events, and the expected rows."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any, Self

PLACEHOLDER = "__debezium_unavailable_value"
Row = dict[str, Any]


@dataclass
class History:
    """A source table that records the change event of every statement.

    Columns: ``id`` (key), ``name``, ``n`` and ``doc``, a large value that updates may leave untouched.
    """

    rng: random.Random
    rows: dict[int, Row] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    lsn: int = 1000

    @classmethod
    def of(cls, seed: int, statements: int, keys: int = 12) -> Self:
        """Run a number of random statements."""
        history = cls(random.Random(seed))
        for _ in range(statements):
            history.statement(keys)
        return history

    def statement(self, keys: int) -> None:
        """Run one random insert, update, delete or key change."""
        key = self.rng.randrange(keys)
        if key not in self.rows:
            self.insert(key)
            return
        choice = self.rng.random()
        other = self.rng.randrange(keys)
        if choice < 0.2:
            self.delete(key)
        elif choice < 0.4 and other not in self.rows:
            self.change_key(key, other)
        else:
            self.update(key, touch_doc=self.rng.random() < 0.3)

    def insert(self, key: int) -> None:
        """Insert a row."""
        self.rows[key] = {"id": key, "name": self._text("n"), "n": self.rng.randrange(1000), "doc": self._text("doc")}
        self._event("c", None, self.rows[key])

    def update(self, key: int, *, touch_doc: bool) -> None:
        """Update a row; without ``touch_doc`` the event has the placeholder."""
        row = self.rows[key]
        row |= {"name": self._text("u"), "n": None if self.rng.random() < 0.2 else self.rng.randrange(1000)}
        if touch_doc:
            row["doc"] = None if self.rng.random() < 0.2 else self._text("doc")
        self._event("u", None, row if touch_doc else {**row, "doc": PLACEHOLDER})

    def delete(self, key: int) -> None:
        """Delete a row; as with default identity, the event has the key only."""
        del self.rows[key]
        self._event("d", {"id": key, "name": "", "n": 0, "doc": None}, None)

    def change_key(self, key: int, new: int) -> None:
        """Update the key: delete, tombstone and create, linked by a header; the create omits the large value."""
        row = self.rows.pop(key) | {"id": new}
        self.rows[new] = row
        self._event("d", {"id": key, "name": "", "n": 0, "doc": None}, None)
        self.lsn -= 10
        self._event("c", None, {**row, "doc": PLACEHOLDER}, old_key=key)

    def expected(self) -> list[tuple[Any, ...]]:
        """Return the rows of the source, sorted by key."""
        return [(r["id"], r["name"], r["n"], r["doc"]) for _, r in sorted(self.rows.items())]

    def _event(self, op: str, before: Row | None, after: Row | None, old_key: int | None = None) -> None:
        self.lsn += 10
        source = {
            "connector": "postgresql",
            "db": "d",
            "schema": "shop",
            "table": "t",
            "lsn": self.lsn,
            "snapshot": "false",
            "ts_ms": 1_700_000_000_000 + self.lsn,
            "sequence": json.dumps([str(self.lsn - 5), str(self.lsn)]),
        }
        headers = [["__debezium.oldkey", json.dumps({"id": old_key})]] if old_key is not None else []
        offset = len(self.events)
        value = {"op": op, "before": before, "after": dict(after) if after else None, "source": source}
        key = {"id": (after or before or {})["id"]}
        self.events.append(
            {"topic": "pg.shop.t", "partition": 0, "offset": offset, "key": key, "value": value, "headers": headers}
        )

    def _text(self, stem: str) -> str:
        return f"{stem}-{self.rng.randrange(10**6)}-é"


def lines(events: list[dict[str, Any]]) -> str:
    """Return events as dumped Kafka records, one per line."""
    return "".join(json.dumps(event) + "\n" for event in events)
