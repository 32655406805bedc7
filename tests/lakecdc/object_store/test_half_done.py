"""Moments, read-only access, names begun by two writers, and the rest of purged tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Never

import pytest
from pyiceberg.exceptions import (
    CommitStateUnknownException,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.object_store.catalog import ObjectCatalog
from lakecdc.object_store.storage import DeniedError
from lakecdc.object_store.versions import DEADLINE, Versions
from tests.lakecdc.object_store.memory import (
    FOLDER,
    NAME,
    WAREHOUSE,
    Clock,
    Counting,
    KilledError,
    MemoryStorage,
    commit,
    tokens,
)

# without waiting
pytestmark = pytest.mark.usefixtures("clock")


def restored(storage: MemoryStorage, catalog: ObjectCatalog, *ids: int, moment: str = "noon/1") -> None:
    """Give the table these snapshots, the first of which is kept by a moment's branch and tag."""
    newest = catalog.load(NAME)
    refs = {name: {"snapshot-id": ids[0]} for name in (moment, f"{moment}-as-restored")}
    text = json.dumps(json.loads(newest.text) | {"snapshots": [{"snapshot-id": each} for each in ids], "refs": refs})
    storage.objects[f"{FOLDER}/metadata/v{newest.number}.metadata.json"] = (text.encode(), -1, datetime.now(UTC))


def test_tables_are_shown_together_at_a_moment(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    restored(storage, catalog, 2**53 + 1, 5)
    catalog.write_moment("noon/1", {"shop.orders": 5})
    assert not catalog.exists(("shop", "orders@noon/1")), "the tag keeps another snapshot"
    catalog.write_moment("noon/1", {"shop.orders": 2**53 + 1})
    shown = json.loads(catalog.load(("shop", "orders@noon/1")).text)
    assert shown["current-snapshot-id"] == shown["refs"]["main"]["snapshot-id"] == 2**53 + 1
    assert "current-snapshot-id" not in json.loads(catalog.load(NAME).text)
    for name in ("orders@evening", "others@noon/1"):
        assert not catalog.exists(("shop", name))
    for change in (
        lambda: catalog.update_table(("shop", "orders@noon/1"), [], [{"token": 1}]),
        lambda: catalog.rename_table(("shop", "orders@noon/1"), ("shop", "b")),
    ):
        with pytest.raises(NoSuchTableError):
            change()


def test_a_dropped_moment_keeps_nothing_wherever_its_writer_dies(
    storage: MemoryStorage, catalog: ObjectCatalog
) -> None:
    past = ("shop", "orders@noon/1")

    def begin() -> None:
        restored(storage, catalog, 7)
        catalog.write_moment("noon/1", {"shop.orders": 7, "shop.gone": 8})

    begin()
    storage.requests.clear()
    catalog.drop_table(past, purge=True)
    writes = [number for number, (request, _) in enumerate(storage.requests) if request in ("create", "replace")]
    assert len(writes) == 3, "the version without the tag, its hint, the document"
    for number in writes:
        for fault in ("killed before", "killed after"):
            begin()
            storage.faults = [""] * number + [fault]
            with pytest.raises(KilledError):
                catalog.drop_table(past)
            storage.settle()
            with suppress(NoSuchTableError):
                catalog.drop_table(past)
            assert not catalog.exists(past) and "noon/1-as-restored" not in json.loads(catalog.load(NAME).text)["refs"]
            with pytest.raises(NoSuchTableError):
                catalog.drop_table(past)


def test_a_moments_branch_with_user_commits_stays(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    restored(storage, catalog, 7)
    stored = storage.objects[f"{FOLDER}/metadata/v1.metadata.json"]
    text = stored[0].replace(b'"noon/1": {"snapshot-id": 7}', b'"noon/1": {"snapshot-id": 9}')
    storage.objects[f"{FOLDER}/metadata/v1.metadata.json"] = (text, *stored[1:])
    catalog.write_moment("noon/1", {"shop.orders": 7})
    catalog.drop_table(("shop", "orders@noon/1"))
    assert json.loads(catalog.load(NAME).text)["refs"] == {"noon/1": {"snapshot-id": 9}}
    assert catalog.exists(NAME)


class ReadsAlone(MemoryStorage):
    """The objects of another storage, for a login that may not write."""

    def __init__(self, others: MemoryStorage) -> None:
        super().__init__(objects=others.objects)

    def delete(self, location: str) -> Never:
        raise DeniedError("the login may not write")

    def _write(self, request: str, location: str, body: bytes, tag: str | None) -> Never:
        self.delete(location)


HALF_DONE: dict[str, Callable[[ObjectCatalog], object]] = {
    "create": lambda catalog: catalog.create_table(("shop",), {"name": "b"}),
    "drop": lambda catalog: catalog.drop_table(NAME),
    "rename": lambda catalog: catalog.rename_table(NAME, ("shop", "b")),
    "commit": lambda catalog: commit(catalog),
    "create namespace": lambda catalog: catalog.create_namespace(("crm",), {}),
    "drop namespace": lambda catalog: catalog.drop_namespace(("empty",)),
    "drop used namespace": lambda catalog: suppressed(lambda: catalog.drop_namespace(("shop",))),
}


def suppressed(act: Callable[[], object]) -> None:
    with suppress(NamespaceNotEmptyError):
        act()


def visible_state(catalog: ObjectCatalog) -> dict[str, object]:
    """Return what a reader sees: commits by table, and properties by namespace."""
    state: dict[str, object] = {}
    for name in ("orders", "b"):
        state[name] = len(tokens(catalog.load(("shop", name)).text)) if catalog.exists(("shop", name)) else None
    for namespace in ("shop", "crm", "empty"):
        try:
            state[f"namespace {namespace}"] = catalog.namespace_properties((namespace,))
            catalog.tables((namespace,))
        except NoSuchNamespaceError:
            state[f"namespace {namespace}"] = None
    return state


@pytest.mark.parametrize("step", HALF_DONE)
def test_readers_see_interrupted_changes_as_completed_and_write_nothing(step: str) -> None:
    undecided = 0
    for number in range(100):
        storage = MemoryStorage()
        catalog = ObjectCatalog(storage, WAREHOUSE, Counting(), readable_paths=True)
        for namespace in ("shop", "empty"):
            catalog.create_namespace((namespace,), {})
        catalog.create_table(("shop",), {"name": "orders"})
        storage.faults = [""] * number + ["killed after"]
        with suppress(KilledError):
            HALF_DONE[step](catalog)
        if storage.faults:
            break
        before = dict(storage.objects)
        storage.requests.clear()
        seen = visible_state(catalog.for_reads())
        assert storage.objects == before and not {request for request, _ in storage.requests} - {
            "read",
            "exists",
            "list",
        }
        login = ObjectCatalog(ReadsAlone(storage), WAREHOUSE, Counting(), readable_paths=True)
        assert visible_state(login) == seen and storage.objects == before
        with pytest.raises(DeniedError):
            login.create_table(("shop",), {"name": "c"})
        settled = visible_state(catalog)
        if step == "rename" and seen != settled:
            # the table does not have its new name yet
            undecided += 1
            settled = visible_state(catalog) | {"orders": 0, "b": None}
        assert seen == settled, number
    assert 5 < number < 99 and bool(undecided) == (step == "rename")


def test_the_folder_of_a_purged_table_is_free_once_no_writer_can_know_a_version(
    storage: MemoryStorage, clock: Clock
) -> None:
    warehouse = f"{WAREHOUSE}/deep"
    catalog = ObjectCatalog(storage, warehouse, Counting(), readable_paths=True)
    catalog.create_namespace(("shop",), {})
    folder = f"{warehouse}/shop/orders"

    def age(days: int) -> None:
        for location, (body, tag, modified) in storage.objects.items():
            storage.objects[location] = (body, tag, modified - timedelta(days=days))

    def left() -> list[str]:
        return [
            each for each in storage.objects if each.startswith(folder) or "/purged/" in each and "clock" not in each
        ]

    catalog.create_table(("shop",), {"name": "orders"})
    commit(catalog)
    storage.objects[f"{folder}/data/a.parquet"] = (b"", -1, datetime.now(UTC))
    late = catalog.load(NAME)
    catalog.drop_table(NAME, purge=True)
    age(29)
    assert catalog.leftovers.remove(datetime.now(UTC)) == 0
    with pytest.raises(TableAlreadyExistsError, match="30 days"):
        catalog.create_table(("shop",), {"name": "orders"})
    age(2)
    purged = dict(storage.objects)
    for number in range(60):
        storage.objects = dict(purged)
        storage.requests.clear()
        storage.faults = [""] * number + ["no request"]
        with suppress(SourceUnavailableError):
            catalog.leftovers.remove(datetime.now(UTC))
        finished = bool(storage.faults)
        storage.settle()
        # such a late commit is refused
        clock.now += DEADLINE + 1
        assert Versions(storage, folder).commit(late.number, late.text, late.read_at) is None
        catalog.leftovers.remove(datetime.now(UTC))
        assert not left()
        if finished:
            break
    assert 8 < number < 59
    catalog.create_table(("shop",), {"name": "orders"})
    assert commit(catalog).number == late.number
    assert Versions(storage, folder).commit(late.number, late.text, late.read_at) is None, "this is another table"
    # an old record does not apply to a table dropped since
    for each, stored in purged.items():
        if "/purged/" in each:
            storage.objects[each] = stored
    catalog.drop_table(NAME)
    assert catalog.leftovers.remove(datetime.now(UTC)) == 0 and left()


def test_a_name_begun_by_two_writers_belongs_to_the_creator_of_the_table() -> None:
    def begin() -> tuple[MemoryStorage, ObjectCatalog]:
        storage = MemoryStorage()
        catalog = ObjectCatalog(storage, WAREHOUSE, Counting(), readable_paths=True)
        catalog.create_namespace(("shop",), {})
        storage.requests.clear()
        return storage, catalog

    storage, catalog = begin()
    catalog.create_table(("shop",), {"name": "b"})
    first = storage.requests.index(("create", f"{WAREHOUSE}/shop/b/metadata/v1.metadata.json"))
    left = 0
    for number in range(60):
        storage, catalog = begin()

        def other(number: int = number, storage: MemoryStorage = storage, catalog: ObjectCatalog = catalog) -> None:
            # it takes the name over from a writer that pauses before its version, and dies at some step
            storage.faults = [""] * number + ["killed before"]
            with suppress(KilledError):
                catalog.create_table(("shop",), {"name": "b"})

        storage.faults, storage.between = [""] * first + ["between"], [other]
        with suppress(CommitStateUnknownException, TableAlreadyExistsError):
            catalog.create_table(("shop",), {"name": "b"})
        storage.settle()
        document = json.loads(storage.objects[f"{WAREHOUSE}/_lakecdc/catalog/names/table/shop/b.json"][0])
        metadata = json.loads(storage.objects[f"{WAREHOUSE}/shop/b/metadata/v1.metadata.json"][0])
        left += document["state"] == "creating" and metadata["lakecdc-commit-id"] != document["incarnation"]
        assert catalog.exists(("shop", "b")) and catalog.tables(("shop",)) == ["b"], number
        with pytest.raises(TableAlreadyExistsError):
            catalog.create_table(("shop",), {"name": "b"})
        catalog.drop_table(("shop", "b"))
        assert not catalog.exists(("shop", "b")), number
    assert left
