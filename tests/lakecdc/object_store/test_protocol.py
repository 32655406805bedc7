"""The catalog compared with a model: no fault or concurrent action loses, duplicates or invents a commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from lakecdc.contract.errors import InputError, SourceUnavailableError
from lakecdc.object_store.catalog import ObjectCatalog
from lakecdc.object_store.moments import Moments
from tests.lakecdc.object_store.memory import FAULTS, Counting, KilledError, MemoryStorage, tokens, without_waiting
from tests.on_demand import on_demand

WAREHOUSE = "s3://bucket/lake"
_REFUSED = (
    CommitFailedException,
    TableAlreadyExistsError,
    InputError,
    NoSuchTableError,
    NoSuchNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
)
_UNSURE = (CommitStateUnknownException, SourceUnavailableError, KilledError)
_NAMES = ("a", "b")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    without_waiting(monkeypatch)
    yield


@dataclass
class Model:
    """The possible states according to the catalog's answers."""

    storage: MemoryStorage = field(default_factory=MemoryStorage)
    #: by token: whether its commit has landed, None if unknown
    commits: dict[int, bool | None] = field(default_factory=dict)
    #: by location: whether a table was certainly created and certainly not dropped
    tables: dict[str, bool] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    #: running drops, and all drops that have begun
    drops: int = 0
    begun: int = 0
    number: int = 0

    def catalog(self) -> ObjectCatalog:
        """Return the catalog of another process."""
        return ObjectCatalog(self.storage, WAREHOUSE, Counting())

    def act(self, kind: str, name: str, other: str) -> None:
        catalog, names, act = self.catalog(), ("shop", name), getattr(self, f"_{kind}")
        try:
            act(catalog, names, ("shop", other))
        except (*_REFUSED, *_UNSURE):
            return

    def _commit(self, catalog: ObjectCatalog, names: tuple[str, ...], _: Any) -> None:
        self.number += 1
        token = self.number
        self.commits[token] = None
        try:
            catalog.update_table(names, [], [{"token": token}])
            self.commits[token] = True
        except _REFUSED:
            self.commits[token] = False

    def _create(self, catalog: ObjectCatalog, names: tuple[str, ...], _: Any) -> None:
        location, begun = catalog.new_location(names), self.begun
        try:
            catalog.create_table(names[:-1], {"name": names[-1], "location": location})
        except _REFUSED:
            self.refused.add(location)
            raise
        self.tables[location] = self.drops == 0 and self.begun == begun

    def _drop(self, catalog: ObjectCatalog, names: tuple[str, ...], _: Any) -> None:
        # the name may refer to any table until the end
        self.tables = dict.fromkeys(self.tables, False)
        self.drops, self.begun = self.drops + 1, self.begun + 1
        try:
            catalog.drop_table(names)
        finally:
            self.drops -= 1

    def _rename(self, catalog: ObjectCatalog, names: tuple[str, ...], to: tuple[str, ...]) -> None:
        catalog.rename_table(names, to)

    def _load(self, catalog: ObjectCatalog, names: tuple[str, ...], _: Any) -> None:
        catalog.load(names)

    def _drop_namespace(self, catalog: ObjectCatalog, names: tuple[str, ...], _: Any) -> None:
        catalog.drop_namespace(names[:1])

    def _create_namespace(self, catalog: ObjectCatalog, names: tuple[str, ...], _: Any) -> None:
        catalog.create_namespace(names[:1], {})

    def _set_property(self, catalog: ObjectCatalog, names: tuple[str, ...], _: Any) -> None:
        catalog.update_namespace(names[:1], (), {names[-1]: "1"})

    def _write_moment(self, catalog: ObjectCatalog, names: tuple[str, ...], _: Any) -> None:
        catalog.write_moment("noon", {".".join(names): 1})

    def locations(self) -> list[str]:
        return [key.rpartition("/metadata/")[0] for key in self.storage.objects if key.endswith("v1.metadata.json")]

    def check(self) -> None:
        """Let all requests arrive, and compare with a catalog without faults."""
        self.storage.settle()
        catalog = self.catalog()
        try:
            catalog.namespace_properties(("shop",))
        except NoSuchNamespaceError:
            assert ("shop",) not in catalog.namespaces()
            assert not any(self.tables.values()), "the namespace of a table is missing"
            catalog.create_namespace(("shop",), {})
        for name in _NAMES:
            catalog.exists(("shop", name))
        loaded = {name: catalog.load(("shop", name)) for name in catalog.tables(("shop",))}
        folders = {name: version.location.rpartition("/metadata/")[0] for name, version in loaded.items()}
        assert len(set(folders.values())) == len(folders), "two names for one table"
        assert {name for name in _NAMES if catalog.exists(("shop", name))} == set(folders), (
            "the listed tables can be loaded"
        )
        assert not self.refused & set(folders.values()), "a table exists although its creation was refused"
        for location, alive in self.tables.items():
            assert not alive or location in folders.values(), "a table has lost its name"
        # commits of dropped tables are looked up in their last version
        landed = [token for location in self.locations() for token in self._landed(location)]
        assert len(set(landed)) == len(landed), "a commit has landed twice"
        for token, sure in self.commits.items():
            assert sure is None or (token in landed) == sure, f"commit {token} is {'lost' if sure else 'invented'}"
        # and the next commit lands
        for name in folders:
            count = len(tokens(loaded[name].text))
            catalog.update_table(("shop", name), [{"type": "count", "value": count}], [{"token": -1}])
        catalog.update_namespace(("shop",), (), {"next": "1"})
        assert catalog.namespace_properties(("shop",))["next"] == "1"
        catalog.write_moment("noon", {"shop.next": 1})
        assert Moments(self.storage, WAREHOUSE).read("noon") == {"shop.next": 1}

    def _landed(self, location: str) -> list[Any]:
        bodies = [
            (int(key.rpartition("/v")[2].partition(".")[0]), body[0])
            for key, body in self.storage.objects.items()
            if key.startswith(f"{location}/metadata/v") and key.endswith(".metadata.json")
        ]
        whole = [body for _, body in sorted(bodies) if b"tokens" in body]
        return tokens(whole[-1].decode())


#: every change, and the changes before it when it is interrupted at each of its requests
_CHANGES = {
    "create_namespace": [],
    "set_property": ["create_namespace"],
    "drop_namespace": ["create_namespace"],
    "create": ["create_namespace"],
    "commit": ["create_namespace", "create", "commit"],
    "rename": ["create_namespace", "create", "commit"],
    "drop": ["create_namespace", "create", "commit"],
    "write_moment": ["create_namespace", "create", "write_moment"],
}
_ACTS = st.tuples(
    st.sampled_from(["load", "commit", *_CHANGES]),
    st.sampled_from(_NAMES),
    st.sampled_from(_NAMES),
)
_FAULTS = st.lists(st.sampled_from(FAULTS), max_size=25)
_STEPS = st.lists(st.tuples(_ACTS, _FAULTS, st.lists(_ACTS, max_size=3)), min_size=1, max_size=8)


def _between(model: Model, act: tuple[str, str, str]) -> Callable[[], object]:
    return lambda: model.act(*act)


@pytest.mark.parametrize("examples", on_demand((300, 1200), in_ci=(300,)))
def test_no_commit_is_lost_duplicated_or_invented(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(_STEPS)
    def change(steps: list[Any]) -> None:
        model = Model()
        model.catalog().create_namespace(("shop",), {})
        model.catalog().create_table(("shop",), {"name": "a"})
        for act, faults, others in steps:
            model.storage.faults, model.storage.between = list(faults), [_between(model, each) for each in others]
            model.act(*act)
            model.storage.faults = []
        model.check()

    change()


def test_each_change_may_be_interrupted_at_each_request() -> None:
    """The process is killed before a request or before its answer, or the request or its answer is lost."""
    points = 0
    for change, before in _CHANGES.items():
        for fault in ("killed before", "killed after", "no request", "no answer"):
            number, struck = 0, True
            while struck:
                model = Model()
                for each in before:
                    model.act(each, "a", "b")
                model.storage.faults = [""] * number + [fault]
                model.act(change, "a", "b")
                struck = not model.storage.faults
                try:
                    model.check()
                except Exception as error:
                    error.add_note(f"{change}: {fault} its request {number + 1}")
                    raise
                points, number = points + (struck and fault.startswith("killed")), number + 1
    assert points > 100
