"""Row changes without events stop the target; similar operations do not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from lakecdc.contract.errors import InputError
from lakecdc.contract.target import Target
from lakecdc.ingest.sources.postgres.catalog import read_table
from lakecdc.ingest.sources.postgres.storage import Remembered, StorageWatch
from lakecdc.metadata.positions import Position, decode
from local_services.postgres import Postgres

TABLES = """
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE plain (id int PRIMARY KEY, a int, b varchar(5), m mood, l mood[]);
INSERT INTO plain VALUES (1, 1, 'x', 'sad'), (2, 2, 'y', 'ok');
CREATE TABLE part (id int, d date, v text, PRIMARY KEY (id, d)) PARTITION BY RANGE (d);
CREATE TABLE p1 PARTITION OF part FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
CREATE TABLE p2 PARTITION OF part FOR VALUES FROM ('2024-02-01') TO ('2024-03-01') PARTITION BY HASH (id);
CREATE TABLE p20 PARTITION OF p2 FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE TABLE p9 PARTITION OF part FOR VALUES FROM ('2024-09-01') TO ('2024-10-01');
INSERT INTO part VALUES (1, '2024-01-05', 'a'), (2, '2024-02-05', 'b')
"""
P3 = "CREATE TABLE p3 (id int NOT NULL, d date NOT NULL, v text, PRIMARY KEY (id, d))"
ATTACH = "ALTER TABLE part ATTACH PARTITION p3 FOR VALUES FROM ('2024-03-01') TO ('2024-04-01')"
INTO_P3 = "INSERT INTO p3 VALUES (10, '2024-03-05', 'attached')"
BORN = "CREATE TABLE p4 PARTITION OF part FOR VALUES FROM ('2024-04-01') TO ('2024-05-01')"
INTO_P4 = "INSERT INTO part VALUES (11, '2024-04-05', 'logged')"
DETACH = "ALTER TABLE part DETACH PARTITION p1"
AGAIN = "ALTER TABLE part ATTACH PARTITION p1 FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')"


@dataclass
class Source:
    """A schema with a plain table and a partitioned one."""

    session: psycopg.Connection[tuple[Any, ...]]

    def sql(self, statement: str) -> None:
        self.session.execute(statement.encode())

    def watch(self, name: str, remembered: dict[str, Any] | None = None) -> StorageWatch:
        """Inspect a table as a starting run does."""
        (schema,) = self.session.execute("SELECT current_schema()::text").fetchone() or ("",)
        return StorageWatch(
            self.session, read_table(self.session, Target(f"x.{name}", source_table=f"{schema}.{name}")), remembered
        )

    def next_run(self, name: str, remembered: dict[str, Any]) -> StorageWatch:
        """Inspect it again, and read the log to its end, which describes the table."""
        storage = self.watch(name, remembered)
        storage.follow(2**63, altered=True, truncated_by=None)
        return storage


_numbers = itertools.count()


@pytest.fixture
def source(server: Postgres) -> Iterator[Source]:
    with psycopg.connect(server.dsn, autocommit=True) as session:
        connection = Source(session)
        name = f"storage{next(_numbers)}"
        connection.sql(f"CREATE SCHEMA {name}")
        connection.sql(f"SET search_path = {name}")
        connection.sql(TABLES)
        yield connection
        connection.sql(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.parametrize(
    ("table", "statements", "reason"),
    [
        ("plain", ["ALTER TABLE plain ALTER a TYPE bigint USING a * 100"], "The rows of .*plain were rewritten"),
        ("plain", ["ALTER TABLE plain ALTER a TYPE int USING a * 100", "VACUUM FULL plain"], "were rewritten"),
        ("plain", ["ALTER TABLE plain ADD c float DEFAULT random()"], "were rewritten"),
        ("part", ["ALTER TABLE part ALTER v TYPE varchar(9) USING v || v"], "were rewritten"),
        ("plain", ["ALTER TYPE mood RENAME VALUE 'sad' TO 'blue'"], "Labels of the enum type mood of .*plain"),
        ("part", [P3, INTO_P3, ATTACH], r"p3 may have been attached to .*part with rows"),
        ("part", [f"BEGIN; {P3}; {INTO_P3}; {ATTACH}; COMMIT"], "p3 may have been attached"),
        ("part", [f"BEGIN; {P3}; {INTO_P3}; {ATTACH}; COMMIT", "SELECT * FROM p3 FOR UPDATE"], "p3 may have been"),
        (
            "part",
            [
                f"{P3} PARTITION BY HASH (id)",
                "CREATE TABLE p30 PARTITION OF p3 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
            ]
            + [INTO_P3, ATTACH],
            "p30 may have been attached",
        ),
        ("part", [DETACH], "was detached or dropped"),
        ("part", ["DROP TABLE p1"], "was detached or dropped"),
        ("part", [DETACH, "UPDATE p1 SET v = 'c'", AGAIN], "was detached and attached again"),
        ("part", ["TRUNCATE p1"], "may have been truncated"),
        ("part", ["TRUNCATE p1", "INSERT INTO part VALUES (3, '2024-01-07', 'c')", "VACUUM FULL p1"], "truncated"),
        ("part", ["TRUNCATE p2"], "may have been truncated"),
        # a transaction other than that of a TRUNCATE in the log
        ("part", ["TRUNCATE part"], "may have been truncated"),
    ],
)
def test_rows_that_change_without_events_stop_their_table(
    source: Source, table: str, statements: list[str], reason: str
) -> None:
    remembered = source.watch(table).encode()
    for statement in statements:
        source.sql(statement)
    with pytest.raises(InputError, match=f"{reason}.*a full load is needed") as caught:
        source.next_run(table, remembered)
    assert caught.value.table == f"x.{table}" and '"reload"' in str(caught.value.hint)


@pytest.mark.parametrize(
    ("table", "statements"),
    [
        ("plain", ["VACUUM FULL plain"]),
        ("plain", ["CLUSTER plain USING plain_pkey"]),
        ("plain", ["TRUNCATE plain", "INSERT INTO plain VALUES (3)"]),
        ("plain", ["ALTER TABLE plain ADD c int DEFAULT 5", "ALTER TABLE plain ALTER b TYPE text"]),
        ("plain", ["ALTER TABLE plain RENAME a TO c", "ALTER TABLE plain DROP b", "CREATE INDEX ON plain (c)"]),
        ("plain", ["ALTER TYPE mood ADD VALUE 'blue' BEFORE 'sad'", "ALTER TABLE plain DROP m"]),
        ("part", ["INSERT INTO part VALUES (3, '2024-01-07', 'c')", "VACUUM FULL p1", "CLUSTER p20 USING p20_pkey"]),
        ("part", [BORN, INTO_P4]),
        ("part", [f"BEGIN; {BORN}; {INTO_P4}; COMMIT"]),
        ("part", [P3, ATTACH]),
        ("part", ["CREATE TABLE p21 (LIKE part)", "GRANT SELECT ON part TO public"]),
    ],
)
def test_logged_changes_and_changes_without_rows_do_not_stop(source: Source, table: str, statements: list[str]) -> None:
    remembered = source.watch(table).encode()
    for statement in statements:
        source.sql(statement)
    source.next_run(table, source.next_run(table, remembered).encode())


def test_a_truncate_of_the_table_explains_new_partition_files(source: Source) -> None:
    remembered = source.watch("part").encode()
    with source.session.transaction():
        source.sql("TRUNCATE part")
        (xid,) = source.session.execute("SELECT txid_current()").fetchone() or (0,)
    storage = source.watch("part", remembered)
    storage.follow(1, altered=True, truncated_by=None)
    again = source.watch("part", storage.encode())
    again.follow(1, altered=False, truncated_by=xid)
    again.follow(2**63, altered=False, truncated_by=None)
    source.next_run("part", again.encode())


def test_the_position_records_the_storage_briefly() -> None:
    many = Remembered(
        {20000 + 7 * i * (1 + i % 3): 20000 + i for i in range(2000)}, "l" * 16, "c" * 16, {7: (9, "d")}, 5
    )
    position = Position("postgres", "1:1", {"lsn": "0/1"}, storage=many.encode())
    assert Remembered.decode(decode(position.encode()).storage or {}) == many
    assert decode('{"source": "postgres", "identity": "1:1"}').storage is None
