"""One of several contenders gets a table's lease, in SQL and REST catalogs; a dead holder's lease is taken over."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from lakecdc.contract.errors import ConflictError
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import Catalog
from lakecdc.iceberg.commit import RowChanges, append_changes, replace_data_files
from lakecdc.iceberg.commit_outcome import retry_commit
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.jvm import iterate
from lakecdc.iceberg.lease import LeaseHeldError, LeaseLostError, is_held, new_lease, put, renew
from lakecdc.iceberg.refs import now_ms, read_refs
from lakecdc.iceberg.staging import stage_rows
from lakecdc.iceberg.table import IcebergTable, Snapshot
from lakecdc.maintain.start_tag import start_tag
from lakecdc.metadata import lease as length
from lakecdc.metadata.lease import Lease, read_lease
from lakecdc.metadata.names import LEASE, LEASE_TAG, LEASE_TAKEN_PREFIX
from lakecdc.runtime.session import use_catalog
from local_services.iceberg_rest import IcebergRest
from tests.conftest import Lake
from tests.on_demand import on_demand

Opened = Callable[[], IcebergTable]


@pytest.fixture(scope="module")
def catalogs(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Yield the names of catalogs that are one REST catalog, so that Spark's table cache is not shared.

    Spark keeps a catalog by its name as long as its session, which other modules also use.
    """
    folder = tmp_path_factory.mktemp("lease_rest")
    names = [f"{folder.name}_{number}" for number in range(3)]
    with IcebergRest(folder) as server:
        for name in names:
            use_catalog(lake.spark, Catalog(name, {"warehouse": f"file://{folder}/warehouse", **server.properties}))
        lake.sql(f"CREATE NAMESPACE {names[0]}.shop")
        yield names


def make(lake: Lake, name: str) -> None:
    """Create a table of one row without Spark."""
    rows = pa.table({"id": pa.array([1], pa.int64())})
    lake.pyiceberg().create_table(name, rows.schema).append(rows)


@pytest.fixture(params=["sql", pytest.param("rest", marks=pytest.mark.services)])
def opened(request: pytest.FixtureRequest, lake: Lake) -> Opened:
    """Return a function that opens a table of one row, each time through another catalog if possible."""
    name = lake.new_name("lease")
    if request.param == "sql":
        make(lake, name)
        return lambda: lake.table(name)
    names = request.getfixturevalue("catalogs")
    table, catalog = f"shop.{name.rpartition('.')[2]}", iter(names)
    lake.sql(f"CREATE TABLE {names[0]}.{table} USING iceberg AS SELECT 1L AS id")
    return lambda: IcebergTable(lake.spark, next(catalog), table)


@pytest.fixture
def table(lake: Lake) -> IcebergTable:
    name = lake.new_name("lease")
    make(lake, name)
    return lake.table(name)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a lease last a second and a half."""
    monkeypatch.setattr(length, "SECONDS", 1.5)
    monkeypatch.setattr(length, "GRACE_SECONDS", 0.5)


def head(table: IcebergTable) -> Snapshot:
    snapshot = table.refresh().head()
    assert snapshot is not None
    return snapshot


def take(table: IcebergTable, lease: Lease) -> None:
    snapshot = head(table)

    def commit() -> None:
        transaction = table.java.newTransaction()
        put(table, transaction, lease, snapshot)
        transaction.commitTransaction()

    retry_commit(table, commit)


def current_lease(table: IcebergTable) -> Lease | None:
    return read_lease(table.refresh().properties)


def end_of_time(table: IcebergTable) -> None:
    """Rewrite the lease as if its holder was killed long ago."""
    lease = current_lease(table)
    assert lease is not None
    dead = Lease(lease.token, lease.holder, now_ms() - 3_600_000)
    table.java.updateProperties().set(LEASE, dead.encode()).commit()


def contend(tables: list[IcebergTable]) -> list[str]:
    """Let each table's run take the lease at the same time; return the tokens of the winners."""
    barrier, won = threading.Barrier(len(tables)), list[str]()

    def run(table: IcebergTable) -> None:
        lease = new_lease(table, "contender")
        table.refresh()
        barrier.wait()
        try:
            take(table, lease)
        except LeaseHeldError:
            return
        won.append(lease.token)

    threads = [threading.Thread(target=run, args=(table,)) for table in tables]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_one_of_several_contenders_gets_the_lease(opened: Opened) -> None:
    tables = [opened() for _ in range(3)]
    (first,) = contend(tables)
    for _ in range(4):
        end_of_time(tables[0])
        (second,) = contend(tables)
        lease = current_lease(tables[0])
        assert lease is not None and lease.token == second
        assert f"{LEASE_TAKEN_PREFIX}{first}" in read_refs(tables[0])
        first = second


@pytest.mark.parametrize("expired", [False, True])
def test_the_later_of_two_prepared_leases_is_refused(opened: Opened, expired: bool) -> None:
    one, other = opened(), opened()
    if expired:
        take(one, new_lease(one, "dead"))
        end_of_time(one)
    lease = new_lease(other, "other")
    snapshot = head(other)
    prepared = other.java.newTransaction()
    put(other, prepared, lease, snapshot)
    take(one, new_lease(one, "one"))
    with pytest.raises(Exception, match=r"CommitFailed|Table metadata refresh|Cannot commit"):
        prepared.commitTransaction()
    with pytest.raises(LeaseHeldError, match="held by one in Spark application") as refused:
        take(other, lease)
    assert TableReport.failure(other.name, refused.value).metrics["lease_holder"].startswith("one in Spark")


def test_a_lease_and_its_tag_are_released_in_one_commit(table: IcebergTable) -> None:
    versions = table.refresh().java.operations().current().previousFiles().size()
    with start_tag(table, head(table), "sort_data_files"):
        lease = current_lease(table)
        assert lease is not None and lease.holder.startswith("sort_data_files in Spark application ")
        assert LEASE_TAG in read_refs(table)
    assert current_lease(table) is None and set(read_refs(table)) == {"main"}
    assert table.java.operations().current().previousFiles().size() == versions + 2


@pytest.mark.usefixtures("short")
def test_a_running_job_renews_its_lease_and_errors_name_its_holder(lake: Lake, table: IcebergTable) -> None:
    other = lake.table(table.name)
    with start_tag(table, head(table), "sort_data_files"):
        first = current_lease(table)
        time.sleep(3)
        renewed = current_lease(table)
        assert first is not None and renewed is not None
        assert renewed.token == first.token and renewed.until_ms > first.until_ms
        with pytest.raises(LeaseHeldError, match="held by sort_data_files in"), start_tag(other, head(other), "job"):
            pass
        assert other.lease is None


@pytest.mark.usefixtures("short")
def test_a_run_waits_for_the_lease_of_a_killed_one_to_end(table: IcebergTable) -> None:
    dead = new_lease(table, "killed")
    take(table, dead)
    with start_tag(table, head(table), "sort_data_files"):
        lease = current_lease(table)
        assert lease is not None and lease.token != dead.token
    assert current_lease(table) is None
    assert set(read_refs(table)) == {"main", f"{LEASE_TAKEN_PREFIX}{dead.token}"}
    with pytest.raises(LeaseLostError):
        renew(table, dead)


def years_ahead(table: IcebergTable, lease: Lease) -> None:
    """Let the lease end years ahead, as if its holder's clock were wrong."""
    ahead = dataclasses.replace(lease, until_ms=now_ms() + 10 * 365 * 86_400_000)
    table.refresh().java.updateProperties().set(LEASE, ahead.encode()).commit()


@pytest.mark.usefixtures("short")
def test_a_lease_that_ends_in_years_is_over_if_it_is_not_renewed(lake: Lake, table: IcebergTable) -> None:
    start, other = head(table), lake.table(table.name)
    (new,) = stage_rows(table, lake.sql("SELECT 1L AS id"))
    removed = [task.file() for task in iterate(table.java.newScan().planFiles())]
    lease = new_lease(table, "wrong clock")
    take(table, lease)
    years_ahead(table, lease)
    begun = time.monotonic()
    with start_tag(other, head(other), "sort_data_files"):
        assert 2 < time.monotonic() - begun < 20
        new_holder = current_lease(other)
        assert new_holder is not None and new_holder.token not in (lease.token, None)
        # its holder was alive: its commit is refused
        table.lease = lease.token
        with pytest.raises(ConflictError, match="another run has taken it over"):
            replace_data_files(table, RowChanges([new], removed_rows=removed), start)
        with pytest.raises(ConflictError, match="another run has taken it over"):
            append_changes(table, RowChanges([new]), PositionFence(None))
    assert head(table).id == start.id


@pytest.mark.usefixtures("short")
def test_a_holder_with_a_wrong_clock_keeps_a_renewed_lease(lake: Lake, table: IcebergTable) -> None:
    lease, holder = new_lease(table, "wrong clock"), lake.table(table.name)
    take(table, lease)
    years_ahead(table, lease)
    renewal = threading.Timer(0.8, lambda: years_ahead(holder, lease))
    renewal.start()
    with pytest.raises(LeaseHeldError, match="held by wrong clock"), start_tag(table, head(table), "sort_data_files"):
        pass
    renewal.join()
    years_ahead(holder, lease)
    assert not is_held(table.refresh())


@pytest.mark.parametrize(
    "meanwhile",
    on_demand(
        ("no other run", "taken over", "renewed too late after that"),
        in_ci=("no other run", "renewed too late after that"),
    ),
)
def test_a_commit_after_the_end_of_the_lease_is_refused(lake: Lake, table: IcebergTable, meanwhile: str) -> None:
    start = head(table)
    (new,) = stage_rows(table, lake.sql("SELECT 1L AS id"))
    removed = [task.file() for task in iterate(table.java.newScan().planFiles())]
    changes = RowChanges([new], removed_rows=removed)
    with start_tag(table, start, "sort_data_files"):
        own = current_lease(table)
        assert own is not None
        end_of_time(table)
        if meanwhile != "no other run":
            take(lake.table(table.name), new_lease(table, "other"))
        if meanwhile == "renewed too late after that":
            table.refresh().java.updateProperties().set(LEASE, own.renewed(now_ms()).encode()).commit()
        with pytest.raises(ConflictError, match="lease of the table has ended"):
            replace_data_files(table, changes, start)
        assert head(table).id == start.id
    replace_data_files(table, changes, start)
    assert head(table).id != start.id
