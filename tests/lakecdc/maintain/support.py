"""Tables for the maintenance jobs: many small files, every kind of delete, and a concurrent writer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.commit import RowChanges, append_changes
from lakecdc.iceberg.definition import spark_types, spec_columns
from lakecdc.iceberg.fence import PositionFence
from lakecdc.iceberg.staging import stage_equality_deletes, stage_rows
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.positions import nearest_carrier
from lakecdc.runtime import failpoints
from lakecdc.runtime.run import TableWork
from tests.conftest import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = list[tuple[Any, ...]]
COLUMNS = "id bigint NOT NULL, v string, d int"


def create(lake: Lake, version: int, partitioned_by: str = "", columns: str = COLUMNS, **properties: str) -> str:
    """Create a table and return its name; ``__`` in a property's name means a dot."""
    name = lake.new_name("nightly")
    settings = {"format-version": str(version), "write.delete.mode": "merge-on-read"}
    settings |= {key.replace("__", "."): value for key, value in properties.items()}
    partitioning = f"PARTITIONED BY ({partitioned_by})" if partitioned_by else ""
    listed = ", ".join(f"'{key}'='{value}'" for key, value in settings.items())
    lake.sql(f"CREATE TABLE lake.{name} ({columns}) USING iceberg {partitioning} TBLPROPERTIES ({listed})")
    return name


def append(lake: Lake, name: str, low: int, high: int, text: str = "old", step: int = 1) -> None:
    """Append rows with ids of a range as one file per partition."""
    _commit_each(lake, name, lake.spark.range(low, high, step, 1), text)


def append_parts(lake: Lake, name: str, low: int, high: int, parts: int, text: str = "old") -> None:
    """Append consecutive parts of a range of ids, one commit and one file per partition each."""
    _commit_each(lake, name, lake.spark.range(low, high, 1, parts), text)


def fill(lake: Lake, name: str, files: int = 5, rows: int = 100) -> None:
    """Append interleaved commits of ``rows`` rows, so that every file spans all keys (and, if odd, all of ``d``)."""
    # nullable values do not fit a required column
    interleaved = f"coalesce(id % {rows} * {files} + id div {rows}, 0L) id"
    _commit_each(lake, name, lake.spark.range(0, files * rows, 1, files).selectExpr(interleaved), "old")


def _commit_each(lake: Lake, name: str, ids: DataFrame, text: str) -> None:
    """Write all rows at once, and commit the files of each task separately."""
    table, by_task = lake.table(name), defaultdict[str, list[Any]](list)
    rows = ids.selectExpr("id", f"concat('{text}', id) v", "cast(id % 2 as int) d", *_further(table))
    for file in stage_rows(table, rows):
        by_task[str(file.location()).rpartition("/")[2].partition("-")[0]].append(file)
    for task in sorted(by_task):
        table = lake.table(name)
        append_changes(table, RowChanges(by_task[task]), _fence(table))


def delete_by_key(
    lake: Lake,
    name: str,
    ids: Iterable[int],
    text: str | None = None,
    positions: str = "",
    spec_id: int | None = None,
) -> None:
    """Commit equality deletes, and with ``text`` also the new rows, as a CDC writer does.

    :param positions: source positions for the summary.
    :param spec_id: partition spec to write the deletes for, default the current one.
    """
    table, listed = lake.table(name), ", ".join(map(str, ids))
    rows = lake.sql(
        f"SELECT id, concat('{text}', id) v, cast(id % 2 as int) d FROM (SELECT explode(array({listed})) id)"
    )
    rows = rows.selectExpr("cast(id as bigint) id", "v", "d", *_further(table)).coalesce(1)
    current = table.java.spec().specId()
    key = key_columns(table)
    deletes = stage_equality_deletes(table, rows.select(*key), key, current if spec_id is None else spec_id)
    added = stage_rows(table, rows) if text else []
    summary = {"lakecdc.positions": positions} if positions else {}
    append_changes(table, RowChanges(added, deletes, summary=summary), _fence(table))


def _further(table: IcebergTable) -> list[str]:
    """Return the columns that a test has added, as nulls."""
    return [f"cast(null as {kind}) {name}" for name, kind in spark_types(table).items() if name not in ("id", "v", "d")]


def key_columns(table: IcebergTable) -> list[str]:
    """Return the equality columns of the table's writer: the id, and ``d`` if rows are partitioned by it."""
    return ["id", "d"] if "d" in spec_columns(table, table.java.spec().specId()) else ["id"]


def _fence(table: IcebergTable) -> PositionFence:
    carrier = nearest_carrier((s.id, s.summary) for s in table.ancestors())
    return PositionFence(carrier.text if carrier else None)


def run(lake: Lake, work: TableWork, name: str, **options: Any) -> TableReport:
    """Run a job on one table in this process, as the job runner does."""
    job = getattr(work, "__name__")  # noqa: B009
    return work(lake.table(name), parse_spec(lake.spec(job, name, options=options)))


def spark_rows(lake: Lake, name: str) -> Rows:
    """Return all rows as Spark reads them, sorted."""
    return sorted(tuple(row) for row in lake.sql(f"SELECT * FROM lake.{name}").collect())


def duckdb_rows(lake: Lake, name: str, columns: str = "*") -> Rows:
    """Return all rows as DuckDB reads them, sorted."""
    return sorted(lake.duckdb_rows(name, columns))


def snapshots(lake: Lake, name: str) -> list[int]:
    """Return the ids of all snapshots in the metadata, oldest first, as pyiceberg reads them."""
    return [snapshot.snapshot_id for snapshot in lake.pyiceberg().load_table(name).metadata.snapshots]


def manifests(lake: Lake, name: str, ref: str | int = "main") -> list[Any]:
    """Return the manifests of a branch, tag or snapshot, as pyiceberg describes them."""
    table = lake.pyiceberg().load_table(name)
    snapshot = table.snapshot_by_id(ref) if isinstance(ref, int) else table.snapshot_by_name(ref)
    return snapshot.manifests(table.io) if snapshot else []


def manifests_of_spec(lake: Lake, name: str, spec_id: int) -> set[str]:
    """Return the locations of the head's manifests of a spec."""
    return {manifest.manifest_path for manifest in manifests(lake, name) if manifest.partition_spec_id == spec_id}


def listed_files(lake: Lake, name: str, content: int | None = None, ref: str | int = "main") -> list[Any]:
    """Return the live files of a branch, tag or snapshot, as pyiceberg describes them.

    :param content: only this kind: 0 data, 1 position deletes and vectors, 2 equality deletes.
    """
    io = PyArrowFileIO()
    entries = [entry for manifest in manifests(lake, name, ref) for entry in manifest.fetch_manifest_entry(io)]
    return [entry.data_file for entry in entries if content is None or entry.data_file.content == content]


def count(lake: Lake, name: str, content: int, ref: str = "main") -> int:
    """Count the live files of one content: 0 data, 1 position deletes and vectors, 2 equality deletes."""
    return len(listed_files(lake, name, content, ref))


def data_bytes(lake: Lake, name: str) -> int:
    """Return the bytes of all live data files."""
    return sum(file.file_size_in_bytes for file in listed_files(lake, name, 0))


def head(lake: Lake, name: str) -> int:
    """Return the id of the newest snapshot."""
    snapshot = lake.table(name).head()
    assert snapshot is not None
    return snapshot.id


def metadata_location(lake: Lake, name: str) -> str:
    """Return the location of the current metadata file, which changes with every commit."""
    return str(lake.pyiceberg().load_table(name).metadata_location)


def files_on_disk(lake: Lake, name: str, suffix: str = ".parquet") -> set[str]:
    """Return the locations of all files under the table, referenced or not."""
    folder = Path(unquote(urlsplit(lake.table(name).location).path))
    return {f"file:{path}" for path in folder.rglob(f"*{suffix}")}


def live_files(lake: Lake, name: str) -> set[str]:
    """Return the locations of the head's files."""
    return {file.file_path.replace("file:///", "file:/") for file in listed_files(lake, name)}


def meanwhile(monkeypatch: pytest.MonkeyPatch, moment: str, act: Callable[[], object]) -> None:
    """Let another writer act once when a job reaches a fail point."""
    todo = [act]

    def reach(name: str) -> None:
        if name == moment and todo:
            todo.pop()()

    monkeypatch.setattr(failpoints, "reach", reach)


def bounds(lake: Lake, name: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the lower and upper bound of columns per data file."""
    schema = lake.pyiceberg().load_table(name).schema()
    fields = [schema.find_field(column) for column in columns]
    return sorted(
        tuple(
            from_bytes(field.field_type, side[field.field_id])
            for field in fields
            for side in (file.lower_bounds, file.upper_bounds)
        )
        for file in listed_files(lake, name, 0)
    )
