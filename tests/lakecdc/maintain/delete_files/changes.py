"""A writer of random changes by key, and a model of the rows that the table must keep under any maintenance."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import Rows, change, insert


class Writer:
    """A CDC writer that commits appends, upserts and deletes by key, and applies them to a model.

    :param keys: number of keys that changes choose from.
    :param rows: the model: value by key.
    """

    def __init__(self, lake: Lake, name: str, seed: int, keys: int = 40) -> None:
        self._lake, self._name, self._random, self._keys = lake, name, random.Random(seed), keys
        self.rows: dict[int, str] = {}
        self.commits = 0

    def step(self) -> None:
        """Make one random commit."""
        kind = self._random.choice(["append", "upsert", "upsert", "delete", "delete and insert"])
        chosen = self._random.sample(range(self._keys), self._random.randint(1, self._keys // 4))
        if kind == "append":
            self.append(key for key in chosen if key not in self.rows)
        elif kind == "delete":
            self.delete(chosen)
        else:
            # in the second case some keys are only deleted, and others of the same commit are new
            inserted = chosen if kind == "upsert" else chosen[::2]
            self.upsert(chosen, inserted)

    def append(self, keys: Iterable[int]) -> None:
        """Insert new keys, without deletes."""
        chosen = list(keys)
        if chosen:
            insert(self._lake, self._name, self._values(chosen))
            self._count(chosen, chosen)

    def delete(self, keys: Iterable[int]) -> None:
        """Delete keys, existing or not."""
        self.upsert(keys, [])

    def upsert(self, keys: Iterable[int], inserted: Iterable[int]) -> None:
        """Delete keys and insert some of them, in one commit."""
        chosen, new = list(keys), list(inserted)
        listed = f"SELECT explode(array({', '.join(f'{key}L' for key in chosen)})) AS id"
        change(self._lake, self._name, ["id"], listed, self._values(new) if new else None)
        self._count(chosen, new)

    def expected(self) -> Rows:
        """Return the model's rows as readers return them."""
        return sorted(self.rows.items(), key=repr)

    def _values(self, keys: Iterable[int]) -> str:
        listed = ", ".join(f"({key}L, '{self._value(key)}')" for key in keys)
        return f"SELECT * FROM VALUES {listed} AS t(id, v)"

    def _value(self, key: int) -> str:
        return f"{key} in commit {self.commits}"

    def _count(self, keys: Iterable[int], inserted: Iterable[int]) -> None:
        for key in keys:
            self.rows.pop(key, None)
        self.rows |= {key: self._value(key) for key in inserted}
        self.commits += 1
