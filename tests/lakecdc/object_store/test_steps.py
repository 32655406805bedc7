"""Single steps of the catalog, with faults in between."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)

from lakecdc.contract.errors import InputError, SourceUnavailableError, UnsupportedError
from lakecdc.object_store import versions as module
from lakecdc.object_store.catalog import ObjectCatalog
from lakecdc.object_store.versions import DEADLINE, Version, Versions
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


def until_create(storage: MemoryStorage, catalog: ObjectCatalog) -> int:
    """Return the number of requests of a commit before it writes its version."""
    storage.requests.clear()
    commit(catalog)
    return [request for request, _ in storage.requests].index("create")


def test_a_store_that_never_answers_leaves_the_outcome_unknown(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    before = until_create(storage, catalog)
    storage.faults = [""] * before + ["no request"] * 500
    with pytest.raises(CommitStateUnknownException, match=r"v3\.metadata\.json"):
        commit(catalog, 7)


def test_a_rejection_after_an_unanswered_attempt_is_not_a_refusal(
    storage: MemoryStorage, catalog: ObjectCatalog
) -> None:
    """Credentials expire after a write that has landed, so nothing can be read."""
    before = until_create(storage, catalog)
    storage.faults = [""] * before + ["rejected"]
    with pytest.raises(InputError):
        commit(catalog, 1)
    storage.faults = [""] * before + ["no answer", *["rejected"] * 500]
    with pytest.raises(CommitStateUnknownException):
        commit(catalog, 2)
    storage.settle()
    assert tokens(catalog.load(NAME).text) == [0, 2]


def test_a_document_that_moved_on_shows_the_writes_before(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    """The answer to a change is lost, and two other changes follow before its writer checks."""

    def others() -> None:
        for name in ("b", "c"):
            catalog.update_namespace(("shop",), (), {name: "1"})

    # read, replace, check
    storage.faults, storage.between = ["", "no answer", "between"], [others]
    catalog.update_namespace(("shop",), (), {"a": "1"})
    assert catalog.namespace_properties(("shop",)) == {"a": "1", "b": "1", "c": "1"}
    assert [request for request, _ in storage.requests].count("replace") == 2 + 3


def test_a_dropped_table_gets_no_further_version(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    before = until_create(storage, catalog)
    storage.faults, storage.between = [""] * before + ["between"], [lambda: catalog.drop_table(NAME)]
    with pytest.raises(NoSuchTableError):
        commit(catalog)
    assert catalog.tables(("shop",)) == []


def test_creating_a_table_and_dropping_its_namespace_exclude_each_other(storage: MemoryStorage) -> None:
    for number in range(40):
        fresh = MemoryStorage()
        catalog = ObjectCatalog(fresh, WAREHOUSE, Counting())
        catalog.create_namespace(("shop",), {})
        outcomes: list[str] = []

        def end(catalog: ObjectCatalog = catalog, outcomes: list[str] = outcomes) -> None:
            try:
                catalog.drop_namespace(("shop",))
                outcomes.append("dropped")
            except (NamespaceNotEmptyError, NoSuchNamespaceError):
                outcomes.append("kept")

        fresh.faults, fresh.between = [""] * number + ["between"], [end]
        try:
            catalog.create_table(("shop",), {"name": "orders"})
            outcomes.append("created")
        except NoSuchNamespaceError:
            outcomes.append("refused")
        fresh.settle()
        assert outcomes in (["dropped", "refused"], ["kept", "created"], ["created"]), number


@pytest.mark.parametrize("stubs_gone", [False, True])
def test_a_very_late_commit_is_refused(
    storage: MemoryStorage, catalog: ObjectCatalog, clock: Clock, stubs_gone: bool
) -> None:
    versions = Versions(storage, FOLDER)
    late = versions.head()
    assert isinstance(late, Version)
    for number in range(120):
        commit(catalog, number)
    now = datetime.now(UTC)
    assert versions.trim(3, now + timedelta(hours=2)) == 118
    assert versions.trim(3, now + timedelta(hours=2)) == 0
    if stubs_gone:
        assert versions.trim(3, now + timedelta(days=31)) == 20
        # its number is free, but it is too late to use it
        assert not storage.exists(versions.location_of(2))
        clock.now += DEADLINE + 1
    assert versions.commit(late.number, "{}", late.read_at) is None
    newest = catalog.load(NAME)
    assert newest.number == 121 and len(tokens(newest.text)) == 120


def test_an_outdated_hint_is_passed_and_updated(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    hint = f"{FOLDER}/metadata/version-hint.text"
    newest = 1
    for number in range(30):
        newest = commit(catalog, number).number
        for behind in (1, newest // 2, newest):
            storage.objects[hint] = (str(behind or 1).encode(), -number, datetime.now(UTC))
            storage.requests.clear()
            assert catalog.load(NAME).number == newest
            assert storage.objects[hint][0] == str(newest).encode()
            assert len(storage.requests) < 22
    for odd in (b"", b"x", b"99"):
        storage.objects[hint] = (odd, -99, datetime.now(UTC))
        assert catalog.load(NAME).number == newest
        assert storage.objects[hint][0] == str(newest).encode()
    del storage.objects[hint]
    assert catalog.load(NAME).number == newest


def test_a_load_takes_four_requests(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    commit(catalog)
    storage.requests.clear()
    catalog.load(NAME)
    assert [request for request, _ in storage.requests] == ["read", "read", "read", "exists"]


def test_wiped_versions_leave_no_content(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    for number in range(3):
        commit(catalog, number)
    versions = Versions(storage, FOLDER)
    assert len(list(versions.contents())) == 3
    assert versions.wipe() == 3 and list(versions.contents()) == []
    assert [b"tokens" in storage.objects[versions.location_of(number)][0] for number in range(1, 5)] == [False] * 3 + [
        True
    ]
    assert commit(catalog, 4).number == 5


def test_snapshots_are_removed_only_where_the_hint_can_follow(
    storage: MemoryStorage, catalog: ObjectCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module.Versions, "move_hint", lambda *_, **__: False)
    with pytest.raises(CommitStateUnknownException, match="delete no files"):
        catalog.update_table(NAME, [], [{"action": "remove-snapshots", "token": 1}])
    assert tokens(catalog.load(NAME).text) == [1]
    assert commit(catalog, 2).number == 3


def test_purging_a_dropped_table_keeps_only_its_version_numbers(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    storage.create(f"{FOLDER}/data/1.parquet", b"rows")
    catalog.drop_table(NAME, purge=True)
    left = {each.location: each.size for each in storage.list(f"{FOLDER}/")}
    assert {name.rpartition("/")[2] for name in left} == {
        "v1.metadata.json",
        "v2.metadata.json",
        "version-hint.text",
    }
    assert max(left.values()) < 200


def test_a_table_with_invisible_versions_keeps_its_name(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    hidden = {name: storage.objects.pop(name) for name in [*storage.objects] if name.startswith(FOLDER)}
    with pytest.raises(SourceUnavailableError, match=r"shop\.orders: no version of its metadata"):
        catalog.load(NAME)
    storage.objects |= hidden
    assert catalog.load(NAME).number == 1 and catalog.tables(("shop",)) == ["orders"]


@pytest.mark.parametrize("location", ["s3://bucket/lake/n/..", "s3://bucket/lake/n/./t", "s3://bucket//t"])
def test_locations_with_empty_or_dot_parts_are_refused(catalog: ObjectCatalog, location: str) -> None:
    with pytest.raises(InputError, match="is empty, or is a dot"):
        catalog.create_table(("shop",), {"name": "odd", "location": location})
    with pytest.raises(InputError, match="is empty, or is a dot"):
        catalog.update_table(NAME, [], [{"action": "set-location", "location": location}])


def test_a_folder_with_further_tables_is_not_purged(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    catalog.create_table(("shop",), {"name": "below", "location": f"{FOLDER}/below"})
    catalog.create_table(("shop",), {"name": "elsewhere", "location": "s3://bucket/other"})
    for name in ("orders", "below", "elsewhere"):
        with pytest.raises(UnsupportedError, match="may be of other tables"):
            catalog.drop_table(("shop", name), purge=True)
        assert catalog.exists(("shop", name))


def test_only_one_of_two_names_gets_a_location(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    place = f"{WAREHOUSE}/place"
    for number in range(20):
        fresh = MemoryStorage()
        catalog = ObjectCatalog(fresh, WAREHOUSE, Counting())
        catalog.create_namespace(("shop",), {})
        fresh.faults = [""] * number + ["between"]
        fresh.between = [lambda catalog=catalog: catalog.create_table(("shop",), {"name": "a", "location": place})]  # type: ignore[misc]
        with pytest.raises(TableAlreadyExistsError):
            catalog.create_table(("shop",), {"name": "b", "location": place})
            # it came first
            catalog.create_table(("shop",), {"name": "a", "location": place})
        fresh.settle()
        assert len([name for name in ("a", "b") if catalog.exists(("shop", name))]) == 1, number
        assert len(catalog.tables(("shop",))) == 1


def test_a_paused_drop_does_not_drop_a_renamed_table(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    for number in range(12):
        fresh = MemoryStorage()
        catalog = ObjectCatalog(fresh, WAREHOUSE, Counting())
        catalog.create_namespace(("shop",), {})
        catalog.create_table(("shop",), {"name": "orders"})
        outcomes: list[str] = []

        def rename(catalog: ObjectCatalog = catalog, outcomes: list[str] = outcomes) -> None:
            try:
                catalog.rename_table(NAME, ("shop", "kept"))
                outcomes.append("renamed")
            except (NoSuchTableError, CommitFailedException):
                outcomes.append("gone")

        fresh.faults, fresh.between = [""] * number + ["between"], [rename]
        try:
            catalog.drop_table(NAME)
        except NoSuchTableError:
            assert outcomes == ["renamed"]
        fresh.settle()
        assert catalog.exists(("shop", "kept")) == (outcomes == ["renamed"]), number


def test_a_rename_that_stopped_is_not_completed_twice(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    """Since then its target was used for many other tables."""
    storage.requests.clear()
    writer = ObjectCatalog(storage, WAREHOUSE, Counting())

    def killed(names: object) -> None:
        raise KilledError

    writer._tables._forget = lambda *_: killed(_)  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        writer.rename_table(NAME, ("shop", "b"))
    catalog.rename_table(("shop", "b"), ("shop", "c"))
    for number in range(15):
        catalog.create_table(("shop",), {"name": "b", "location": f"{WAREHOUSE}/b{number}"})
        catalog.drop_table(("shop", "b"))
    assert not catalog.exists(NAME)
    assert catalog.tables(("shop",)) == ["c"] and not catalog.exists(("shop", "b"))


def test_markers_of_a_dead_writer_are_removed(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    storage.create(f"{WAREHOUSE}/_lakecdc/catalog/live/table/shop/orders/another", b"{}")
    catalog.drop_table(NAME)
    assert catalog.tables(("shop",)) == []
    catalog.drop_namespace(("shop",))
    assert catalog.namespaces() == []


def test_an_abandoned_name_can_be_the_target_of_a_rename(storage: MemoryStorage, catalog: ObjectCatalog) -> None:
    # after namespace, name and location, its document is written, but no version
    storage.faults = [""] * 6 + ["killed before"]
    with pytest.raises(KilledError):
        catalog.create_table(("shop",), {"name": "b"})
    storage.settle()
    assert any(name.endswith("shop/b.json") for name in storage.objects) and not catalog.exists(("shop", "b"))
    catalog.rename_table(NAME, ("shop", "b"))
    assert catalog.tables(("shop",)) == ["b"]
