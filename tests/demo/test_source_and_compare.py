"""The source on a real Postgres, its export, and a comparison that reports differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from demo.compare import Comparison, Place, compare, metadata_file
from demo.expected import export
from demo.settings import CATALOG, Settings
from demo.shop import TABLES
from demo.source import Source, start_again
from demo.workload import Workload

HOURS = 3


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a small demo."""
    settings = Settings(rows=1_000, hours=HOURS, folder=tmp_path_factory.mktemp("demo"))
    settings.logs.mkdir(parents=True)
    return settings


@pytest.fixture(scope="module")
def workload(settings: Settings) -> Workload:
    """Return its workload."""
    return Workload(settings.seed, settings.rows, settings.hours)


@pytest.fixture(scope="module")
def worked(settings: Settings, workload: Workload) -> Iterator[Source]:
    """Yield a source after all its hours."""
    source = Source(settings)
    source.start()
    source.fill(workload)
    for number in range(1, HOURS + 1):
        source.work(workload.hour(number))
    for table in TABLES:
        export(source, table, settings.expected)
    yield source
    source.stop()


def test_the_source_has_the_keys_tracked_by_the_workload(worked: Source, workload: Workload) -> None:
    with worked.connect() as session:
        counts = [session.execute(f"SELECT count(*) FROM {t.full_name}").fetchone() for t in TABLES]
    assert counts == [(len(workload.customers),), (len(workload.orders),), (len(workload.lines),)]


def test_the_export_equals_the_source(worked: Source, settings: Settings) -> None:
    import psycopg.rows

    for table in TABLES:
        columns = ", ".join(table.columns)
        order = ", ".join(table.key)
        with worked.connect() as session, session.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            session.execute("SET TimeZone = 'UTC'")
            casts = columns.replace("tags", "tags::text").replace("preferences", "preferences::text")
            casts = casts.replace("reference,", "reference::text,")
            rows = cursor.execute(f"SELECT {casts} FROM {table.full_name} ORDER BY {order}").fetchall()
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            file = settings.expected / f"{table.name}.parquet"
            exported = connection.execute(f"SELECT {columns} FROM '{file}' ORDER BY {order}").fetchall()
        assert exported == rows


def test_every_column_has_its_type(worked: Source, settings: Settings) -> None:
    for table in TABLES:
        with duckdb.connect() as connection:
            described = connection.execute(f"DESCRIBE SELECT * FROM '{settings.expected}/{table.name}.parquet'")
            assert {row[0]: row[1] for row in described.fetchall()} == table.columns


Lake = Callable[[Any], Place]


@pytest.fixture
def lake(worked: Source, settings: Settings, tmp_path: Path) -> Lake:
    """Return a function that changes the source's rows and writes them to an Iceberg table with pyiceberg."""

    def make(change: Callable[[Any], Any]) -> Place:
        rows = change(pq.read_table(settings.expected / "orders.parquet"))
        file = tmp_path / "catalog.db"
        catalog = SqlCatalog(CATALOG, uri=f"sqlite:///{file}", warehouse=f"file://{tmp_path}/warehouse")
        catalog.create_namespace("shop")
        catalog.create_table("shop.orders", rows.schema).append(rows)
        return metadata_file(file, "shop.orders")

    return make


def compared(settings: Settings, table: Place) -> Comparison:
    """Compare a table with the source's rows."""
    return compare(table, settings.expected / "orders.parquet")


def test_an_equal_table_is_equal(lake: Lake, settings: Settings) -> None:
    comparison = compared(settings, lake(lambda rows: rows))
    assert comparison.equal
    assert comparison.rows == comparison.expected_rows > 300


def test_columns_of_lakecdc_do_not_count(lake: Lake, settings: Settings) -> None:
    order = [[""]]
    assert compared(settings, lake(lambda t: t.append_column("_lakecdc_order", [order[0] * t.num_rows]))).equal


def test_a_changed_value_is_reported(lake: Lake, settings: Settings) -> None:
    def change(rows: Any) -> Any:
        weights = rows["weight"].to_pylist()
        weights[5] = (weights[5] or 0.0) + 1e-9
        return rows.set_column(rows.schema.get_field_index("weight"), rows.schema.field("weight"), [weights])

    comparison = compared(settings, lake(change))
    assert (comparison.equal, comparison.missing, comparison.unexpected) == (False, 1, 1)
    assert comparison.differences[0].startswith("only at the source: (")


def test_a_null_is_not_an_empty_text(lake: Lake, settings: Settings) -> None:
    def change(rows: Any) -> Any:
        notes = [note or "" for note in rows["gift_note"].to_pylist()]
        return rows.set_column(rows.schema.get_field_index("gift_note"), rows.schema.field("gift_note"), [notes])

    assert compared(settings, lake(change)).missing > 0


def test_a_missing_row_is_reported(lake: Lake, settings: Settings) -> None:
    comparison = compared(settings, lake(lambda rows: rows.slice(1)))
    assert (comparison.equal, comparison.missing, comparison.unexpected) == (False, 1, 0)


def test_a_duplicate_row_is_reported(lake: Lake, settings: Settings) -> None:
    import pyarrow as pa

    comparison = compared(settings, lake(lambda rows: pa.concat_tables([rows, rows.slice(0, 1)])))
    assert (comparison.equal, comparison.missing, comparison.unexpected) == (False, 0, 1)


def test_a_missing_column_is_reported(lake: Lake, settings: Settings) -> None:
    comparison = compared(settings, lake(lambda rows: rows.drop_columns(["gift_note"])))
    assert comparison.differences == ("column gift_note: missing instead of VARCHAR",)


def test_another_type_is_reported(lake: Lake, settings: Settings) -> None:
    def change(rows: Any) -> Any:
        import pyarrow as pa

        return rows.set_column(1, "customer_id", rows["customer_id"].cast(pa.int64()))

    assert compared(settings, lake(change)).differences == ("column customer_id: BIGINT instead of INTEGER",)


def test_an_unknown_table_is_named(settings: Settings, tmp_path: Path) -> None:
    SqlCatalog(CATALOG, uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    with pytest.raises(LookupError, match=r"shop\.nothing"):
        metadata_file(tmp_path / "catalog.db", "shop.nothing")


def test_the_source_can_be_started_again(tmp_path: Path) -> None:
    # pytest's folders are closed to others, like a checkout in root's home: as root, the data has to go elsewhere
    settings = Settings(rows=200, hours=1, folder=tmp_path)
    settings.logs.mkdir(parents=True)
    source = Source(settings)
    source.start()
    rows = source.fill(Workload(settings.seed, settings.rows, settings.hours))
    source.stop()
    again = start_again(settings)
    try:
        with again.connect() as session:
            assert session.execute(
                "SELECT sum(n) FROM (SELECT count(*) n FROM shop.customers UNION ALL "
                "SELECT count(*) FROM shop.orders UNION ALL SELECT count(*) FROM shop.order_lines) x"
            ).fetchone() == (rows,)
    finally:
        again.stop()
    # it needs nothing of the demo: the settings are in the data folder
    assert "wal_level = 'logical'" in (settings.postgres_data / "postgresql.auto.conf").read_text()
    (settings.postgres_data / "PG_VERSION").unlink()
    with pytest.raises(FileNotFoundError, match="make demo"):
        start_again(settings)
