"""Every kind of commit on a small table, and what must hold after a fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import s3fs
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.spec import Catalog, parse_spec
from lakecdc.iceberg import manifests, refs, scratch
from lakecdc.iceberg.commit import RowChanges, append_changes, remove_files
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.expressions import row_filter
from lakecdc.iceberg.fence import FloorFence, KnownFloor, PositionFence
from lakecdc.iceberg.partition_fields import change_buckets, partition_fields
from lakecdc.iceberg.staging import stage_equality_deletes, stage_rows
from lakecdc.iceberg.table import IcebergTable
from lakecdc.iceberg.table_statistics import column_statistics, partition_statistics
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.sort import sort_data_files
from lakecdc.maintain.statistics import compute_statistics
from lakecdc.metadata import names
from lakecdc.metadata.positions import nearest_carrier
from lakecdc.runtime.run import TableWork
from lakecdc.runtime.session import use_catalog
from tests.conftest import Lake
from tests.lakecdc.iceberg.faults.strikes import Fault, Strikes
from tests.readers import duckdb_rows

Rows = list[tuple[int, str]]


def rows_of(ids: Iterable[int], text: str = "old") -> Rows:
    """Return rows with these ids."""
    return [(number, text) for number in ids]


OLD, NEW = rows_of(range(6)), rows_of(range(4, 8), "new")
UPSERTED, BOTH = OLD[:4] + NEW, sorted(OLD + NEW)


@dataclass
class Place:
    """A catalog with a lossy connection.

    :param lake: lake whose session is used.
    :param catalog: name of the catalog in the session.
    :param properties: properties of the catalog with the lossy connection.
    :param direct: properties of the catalog with a direct connection.
    :param strikes: faults of the connection.
    """

    lake: Lake
    catalog: str
    properties: Mapping[str, str]
    direct: Mapping[str, str]
    strikes: Strikes

    @classmethod
    def opened(cls, lake: Lake, folder: Path, direct: Mapping[str, str], strikes: Strikes, **way: str) -> Place:
        """Open the catalog as a job does, named like its folder.

        :param way: properties of the lossy connection.
        """
        direct = {"warehouse": f"file://{folder}/warehouse", **direct}
        faulty = {name.replace("_", "."): value for name, value in way.items()}
        place = cls(lake, folder.name, {**direct, **faulty}, direct, strikes)
        use_catalog(lake.spark, Catalog(place.catalog, dict(place.properties)))
        lake.sql(f"CREATE NAMESPACE {place.catalog}.shop")
        return place

    def table(self, name: str) -> IcebergTable:
        """Load a table."""
        return IcebergTable(self.lake.spark, self.catalog, name)

    def new_name(self) -> str:
        """Return an unused table name."""
        return f"shop.t{next(self.lake.counter)}"

    def create(self) -> str:
        """Create a table with the rows ``OLD`` and return its name."""
        name = self.new_name()
        self.lake.sql(
            f"CREATE TABLE {self.catalog}.{name} (id bigint NOT NULL, v string) USING iceberg TBLPROPERTIES "
            "('format-version'='2', 'write.delete.mode'='merge-on-read', 'commit.retry.min-wait-ms'='1')"
        )
        self.upsert(name, OLD, deletes=False)
        return name

    def frame(self, rows: Rows) -> Any:
        """Return rows as a frame of one partition."""
        values = ", ".join(f"({number}L, '{text}')" for number, text in rows)
        return self.lake.sql(f"SELECT * FROM VALUES {values} AS t(id, v)").coalesce(1)

    def upsert(self, name: str, rows: Rows, *, deletes: bool = True, truncate: bool = False) -> None:
        """Commit a batch as ingest does."""
        table, frame = self.table(name), self.frame(rows)
        position = self.position(table)
        equality = stage_equality_deletes(table, frame.select("id"), ["id"], 0) if deletes else []
        everything = row_filter(table, "id", "greaterThanOrEqual", 0) if truncate else None  # type: ignore[arg-type]
        changes = RowChanges(stage_rows(table, frame), equality, summary={names.POSITIONS: f"after {position}"})
        append_changes(table, changes, PositionFence(position), truncate=everything, tag=names.POSITIONS_TAG)

    def merge(self, name: str, rows: Rows) -> None:
        """Commit a batch as mode ``merge`` does."""
        table = self.table(name)
        base, position = table.head(), self.position(table)
        assert base is not None
        self.frame(rows).createOrReplaceTempView("merged")
        with scratch.branch(table, base) as branch:
            self.lake.sql(
                f"MERGE INTO {self.catalog}.{name}.branch_{branch} t USING merged s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
            summary = {names.POSITIONS: f"after {position}"}
            scratch.publish(table, branch, base, PositionFence(position), summary)

    def maintain(self, name: str, work: TableWork, **options: Any) -> None:
        """Run a maintenance job that has work to do."""
        job = getattr(work, "__name__")  # noqa: B009
        report = work(self.table(name), parse_spec(self.lake.spec(job, name, options=options)))
        if report.outcome != "done":
            raise LakecdcError(report.reason or report.outcome)

    def statement(self, text: str, name: str) -> None:
        """Run a Spark statement on a table."""
        self.lake.sql(text.format(f"{self.catalog}.{name}"))

    def position(self, table: IcebergTable) -> str | None:
        """Return the table's position."""
        carrier = nearest_carrier((s.id, s.summary) for s in table.ancestors())
        return carrier.text if carrier else None

    def rows(self, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """Return all rows, after checking that DuckDB reads the same."""
        rows = sorted(tuple(row) for row in self.table(name).read(columns=columns.split(", ")).collect())
        assert self.stored(name, columns) == rows
        return rows

    def stored(self, name: str, columns: str = "*") -> list[tuple[Any, ...]]:
        """Return all rows as DuckDB reads them."""
        location = self.table(name).java.operations().current().metadataFileLocation()
        return sorted(duckdb_rows(str(location), columns, storage=self._storage()))

    def _storage(self) -> Any:
        endpoint = self.direct.get("s3.endpoint")
        if endpoint is None:
            return None
        account = {"key": self.direct["s3.access-key-id"], "secret": self.direct["s3.secret-access-key"]}
        return s3fs.S3FileSystem(**account, endpoint_url=endpoint, use_listings_cache=False)


Act = Callable[[Place, str], None]


@dataclass(frozen=True)
class Kind:
    """A kind of commit.

    :param act: makes the commit.
    :param after: rows of the table after the commit.
    :param prepare: makes earlier commits that it needs.
    :param nth: number of the commit in ``act`` that the fault hits: jobs first tag their start snapshot.
    """

    act: Act
    after: Rows
    prepare: Act = lambda place, name: None
    nth: int = 1


def _upsert(place: Place, name: str) -> None:
    place.upsert(name, NEW)


def _two_files(place: Place, name: str) -> None:
    place.upsert(name, NEW, deletes=False)


def _manifests(place: Place, name: str) -> None:
    table = place.table(name)
    manifests.publish_manifests(table, manifests.stage_manifests(table, [0], {names.JOB: "rewrite_manifests"}))
    assert len(manifests.manifests(place.table(name))) == 1


def _expire(place: Place, name: str) -> None:
    place.maintain(name, expire_snapshots, older_than=datetime.now(UTC).isoformat(), retain_last=1)
    assert sum(1 for _ in place.table(name).ancestors()) == 1


def _tag(place: Place, name: str) -> None:
    table = place.table(name)
    head = table.head()
    assert head is not None
    refs.change_refs(table, {"day": refs.Ref(head.id, "tag")})
    assert refs.read_refs(place.table(name))["day"].snapshot_id == head.id


def _properties(place: Place, name: str) -> None:
    place.table(name).update_properties({"a": "1"})
    assert place.table(name).properties["a"] == "1"


def _partitioned(place: Place, name: str) -> None:
    place.statement("ALTER TABLE {} ADD PARTITION FIELD bucket(2, id)", name)


def _buckets(place: Place, name: str) -> None:
    table = place.table(name)
    spec_id = current_spec_id(table)
    change_buckets(table, spec_id, partition_fields(table)[spec_id][-1], 4)
    table = place.table(name)
    assert [field.buckets for field in partition_fields(table)[current_spec_id(table)]] == [4]


def _statistics(place: Place, name: str) -> None:
    place.maintain(name, compute_statistics, columns=["id"])
    table, head = place.table(name), place.table(name).head()
    assert head is not None and head.id in column_statistics(table).keys() & partition_statistics(table)


def _old_files(place: Place, name: str) -> None:
    table = place.table(name)
    rows = row_filter(table, "v", "greaterThanOrEqual", "old")
    fence = FloorFence(KnownFloor(table, {names.EXPIRED_BELOW: table.properties.get(names.EXPIRED_BELOW)}))
    remove_files(table, rows, fence, summary={names.JOB: "expire_partitions"}, properties={names.EXPIRED_BELOW: "x"})
    assert place.table(name).properties[names.EXPIRED_BELOW] == "x"


def _sort(place: Place, name: str) -> None:
    place.maintain(name, sort_data_files, columns=["id"], min_overlap_depth=1.0)


def _compact(place: Place, name: str) -> None:
    place.maintain(name, compact_data_files, min_input_files=2)


KINDS: Mapping[str, Kind] = {
    "append": Kind(_upsert, UPSERTED),
    "truncate": Kind(lambda place, name: place.upsert(name, NEW, truncate=True), NEW),
    "merge-branch": Kind(lambda place, name: place.merge(name, NEW), UPSERTED, nth=1),
    "merge-statement": Kind(lambda place, name: place.merge(name, NEW), UPSERTED, nth=2),
    "merge-publish": Kind(lambda place, name: place.merge(name, NEW), UPSERTED, nth=3),
    "deletes": Kind(lambda place, name: place.maintain(name, rewrite_delete_files), UPSERTED, _upsert, nth=2),
    "compaction": Kind(_compact, BOTH, _two_files, nth=2),
    "sort": Kind(_sort, BOTH, _two_files, nth=2),
    "manifests": Kind(_manifests, BOTH, _two_files),
    "expiry": Kind(_expire, BOTH, _two_files),
    "old-files": Kind(_old_files, NEW, _two_files),
    "tag": Kind(_tag, OLD),
    "properties": Kind(_properties, OLD),
    "buckets": Kind(_buckets, OLD, _partitioned),
    "statistics": Kind(_statistics, OLD, _partitioned, nth=2),
    "partition-statistics": Kind(_statistics, OLD, _partitioned, nth=3),
    "insert": Kind(lambda place, name: place.frame(NEW).writeTo(f"{place.catalog}.{name}").append(), BOTH),
    "delete": Kind(lambda place, name: place.statement("DELETE FROM {} WHERE id < 2", name), OLD[2:]),
}


def some_of(*names: str) -> list[Any]:
    """Return all kinds as parameters; kinds that are not named run on demand."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.soak) for name in KINDS]


def survive(place: Place, kind: Kind, fault: Fault) -> None:
    """Let a fault strike a commit: the table stays readable, has the batch once, and the next run succeeds."""
    name = place.create()
    kind.prepare(place, name)
    before = place.stored(name)
    place.strikes.arm(replace(fault, nth=kind.nth))
    try:
        kind.act(place, name)
    except (LakecdcError, Py4JJavaError, PySparkException):
        assert place.strikes.struck and fault.lost == "request"
        assert place.rows(name) == before
        kind.act(place, name)
    assert place.strikes.struck
    assert place.rows(name) == kind.after
    place.upsert(name, rows_of([100]), deletes=False)
    assert place.stored(name) == kind.after + rows_of([100])
    assert [tag for tag in refs.read_refs(place.table(name)) if tag.startswith(names.MERGE_BRANCH_PREFIX)] == []
