"""A writer of random changes by key, with a fold beside it: what the table must hold, whatever maintenance does."""

from __future__ import annotations

import random
from collections.abc import Iterable

from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import Rows, change, insert


class Writer:
    """Commits appends and upserts and deletes by key, as a CDC writer does, and folds them.

    :param keys: numbers of the keys that changes choose from.
    :param rows: the fold: key to value.
    """

    def __init__(self, lake: Lake, name: str, seed: int, keys: int = 40) -> None:
        self._lake, self._name, self._random, self._keys = lake, name, random.Random(seed), keys
        self.rows: dict[int, str] = {}
        self.commits = 0

    def step(self) -> None:
        """One commit."""
        kind = self._random.choice(["append", "upsert", "upsert", "delete", "delete and insert"])
        chosen = self._random.sample(range(self._keys), self._random.randint(1, self._keys // 4))
        if kind == "append":
            self.append(key for key in chosen if key not in self.rows)
        elif kind == "delete":
            self.delete(chosen)
        else:
            # with the second kind some keys are deleted only, and others of the same commit are new
            kept = chosen if kind == "upsert" else chosen[::2]
            self.upsert(chosen, kept)

    def append(self, keys: Iterable[int]) -> None:
        """Insert keys that are not there, without deletes."""
        chosen = list(keys)
        if chosen:
            insert(self._lake, self._name, self._values(chosen))
            self._count(chosen, chosen)

    def delete(self, keys: Iterable[int]) -> None:
        """Delete keys, whether there or not."""
        self.upsert(keys, [])

    def upsert(self, keys: Iterable[int], kept: Iterable[int]) -> None:
        """Delete keys and insert some of them, in one commit."""
        chosen, new = list(keys), list(kept)
        listed = f"SELECT explode(array({', '.join(f'{key}L' for key in chosen)})) AS id"
        change(self._lake, self._name, ["id"], listed, self._values(new) if new else None)
        self._count(chosen, new)

    def expected(self) -> Rows:
        """The fold, as readers give the table's rows."""
        return sorted(self.rows.items(), key=repr)

    def _values(self, keys: Iterable[int]) -> str:
        listed = ", ".join(f"({key}L, '{self._value(key)}')" for key in keys)
        return f"SELECT * FROM VALUES {listed} AS t(id, v)"

    def _value(self, key: int) -> str:
        return f"{key} in commit {self.commits}"

    def _count(self, keys: Iterable[int], kept: Iterable[int]) -> None:
        for key in keys:
            self.rows.pop(key, None)
        self.rows |= {key: self._value(key) for key in kept}
        self.commits += 1
