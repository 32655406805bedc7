"""Tables with every form of deletes that go from job to job, for comparing readers at each stage."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lakecdc.erase.job import erase_rows
from lakecdc.maintain.compact import compact_data_files
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from lakecdc.maintain.expire import expire_snapshots
from lakecdc.maintain.manifests import rewrite_manifests
from lakecdc.maintain.rebucket import rebucket
from lakecdc.maintain.rollback import rollback_tables
from lakecdc.maintain.set_readers import set_readers
from lakecdc.maintain.sort import sort_data_files
from lakecdc.maintain.statistics import compute_statistics
from lakecdc.maintain.tag import tag_snapshots
from lakecdc.runtime.run import TableWork
from tests.conftest import Lake
from tests.lakecdc.ingest.apply.support import COLUMNS, Feed, final_rows
from tests.lakecdc.maintain.delete_files.support import change, insert
from tests.lakecdc.maintain.support import create, head, run
from tests.lakecdc.moments.support import RememberedPlain, iso, restored

#: the last job, and the table to read
Stages = Iterator[tuple[str, str]]

TYPES = (
    "id bigint NOT NULL, part string, amount decimal(12,2), at timestamp_ntz, moment timestamp, day date, raw binary, "
    "ok boolean, ratio double, small int, gone string, nest struct<a: int, b: string>, many array<string>, "
    "pairs map<string, int>"
)


def typed(lake: Lake, folder: Path, version: int) -> Stages:
    """Yield a table with every type, keys with nulls, two layouts, and added, dropped, widened and renamed columns."""
    name = create(lake, version, "bucket(2, id)", TYPES, write__delete__granularity="partition")
    insert(lake, name, _values("id < 40", "amount, at, moment, day, raw, ok, ratio, small, gone"), files=2)
    yield "rows", name
    upsert(lake, name, "id % 3 = 0", "amount, at, moment, day, raw, ok, ratio, small, gone")
    yield "equality deletes", name
    for alteration in (
        "RENAME COLUMN amount TO price",
        "DROP COLUMN gone",
        "ALTER COLUMN small TYPE bigint",
        "ADD COLUMN added int",
        "REPLACE PARTITION FIELD bucket(2, id) WITH bucket(3, id)",
    ):
        lake.sql(f"ALTER TABLE lake.{name} {alteration}")
    columns = "amount AS price, at, moment, day, raw, ok, ratio, bigint(small) + 3000000000 AS small"
    upsert(lake, name, "id % 5 = 0", columns, "small AS added", specs=(0, 1))
    yield "other columns and another layout", name
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 7 = 3")
    yield "position deletes beside equality deletes", name
    yield _done(lake, rewrite_delete_files, name), name
    upsert(lake, name, "id % 4 = 1", columns, "small AS added", specs=(0, 1))
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 11 = 4")
    yield _done(lake, compact_data_files, name, min_input_files=2, older_specs=True), name
    upsert(lake, name, "id % 4 = 3", columns, "small AS added")
    yield _done(lake, sort_data_files, name, columns=["id"], min_overlap_depth=1), name
    upsert(lake, name, "id % 4 = 0", columns, "small AS added")
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 6 = 5")
    yield "a batch after all that", name
    yield _done(lake, set_readers, name, readers=["databricks" if version == 3 else "snowflake"]), name
    upsert(lake, name, "id % 6 = 1", columns, "small AS added")
    lake.sql(f"DELETE FROM lake.{name} WHERE id % 13 = 5")
    yield _done(lake, set_readers, name, readers=["databricks"]), name


def upsert(lake: Lake, name: str, which: str, columns: str, *last: str, specs: tuple[int, ...] | None = None) -> None:
    """Commit equality deletes by two columns, one of them sometimes null, and the rows again."""
    keys = f"SELECT id, part FROM ({_values(which, 'id')})"
    change(lake, name, ["id", "part"], keys, _values(f"{which} AND id % 2 = 0", columns, *last), specs)


def _values(which: str, columns: str, *last: str) -> str:
    nested = (
        "named_struct('a', small, 'b', concat('b', id)) AS nest",
        "array(concat('x', id), NULL, 'é') AS many",
        "map('k', small, 'l', NULL) AS pairs",
    )
    own = "id, part, " if columns != "id" else "part, "
    return f"""SELECT {own}{columns}, {", ".join((*nested, *last))} FROM (
        SELECT id, IF(id % 4 = 1, NULL, concat('p', id % 3)) AS part, CAST(id * 1.01 AS decimal(12, 2)) AS amount,
        TIMESTAMP_NTZ '2024-02-29 23:59:59.123456' + make_interval(0, 0, 0, int(id)) AS at,
        TIMESTAMP '1969-12-31 23:59:59.999999Z' + make_interval(0, 0, 0, 0, int(id)) AS moment,
        date_add(DATE '1969-12-25', int(id)) AS day, unhex(concat('00ff', lpad(hex(id), 2, '0'))) AS raw,
        IF(id % 5 = 2, NULL, id % 2 = 0) AS ok, IF(id % 9 = 0, double('NaN'), id / 3) AS ratio, int(id) AS small,
        concat('g', id) AS gone FROM range(0, 60, 1, 1)) WHERE {which}"""


def fed(lake: Lake, folder: Path, version: int, **target: Any) -> Stages:
    """Yield a table that ingestion feeds, with the jobs that know its source."""
    name = lake.new_name("fed")
    settings = {"format_version": version, "partition_by": ["bucket(2, id)"], "history_table": f"{name}_history"}
    feed, history = Feed(lake, folder, {**settings, **target}, table=name), RememberedPlain(random.Random(version))
    applied = 0

    def batch() -> None:
        nonlocal applied
        for _ in range(30):
            history.statement(40)
        feed.take(history.events[applied:])
        applied = len(history.events)
        rows = lake.sql(f"SELECT {COLUMNS} FROM lake.{name}").collect()
        assert sorted(map(tuple, rows), key=str) == final_rows(history)

    unresolved, whole = "mode" not in target and "deletes" not in target, "merge_mode" in target
    for number in range(3):
        batch()
        yield f"batch {number}", name
    first, middle = head(lake, name), history.moments()[-40]
    yield _done(lake, rewrite_delete_files, name, unresolved), name
    batch()
    yield "a batch after the conversion", name
    yield _done(lake, rebucket, name, target_bucket_bytes=300, max_buckets=4), name
    batch()
    yield _done(lake, compact_data_files, name, not whole, min_input_files=2), name
    yield _done(lake, compute_statistics, name), name
    batch()
    yield _done(lake, sort_data_files, name, not whole, columns=["id"], min_overlap_depth=1), name
    batch()
    yield "a batch after the sort", name
    yield _done(lake, rewrite_manifests, name, not whole, min_manifests=2), name
    created = [{"action": "create", "kind": "tag", "name": "kept"}]
    yield _done(lake, tag_snapshots, name, changes=created), name
    into = f"{name}_then"
    report = restored(lake, name, moment=iso(middle), into={name: into})[0]
    assert report.outcome == "done", report.reason
    yield "restore_moment", into
    yield _done(lake, rollback_tables, name, to=str(first), history_tables={name: f"{name}_history"}), name
    assert feed.run().outcome == "done"
    yield "what was rolled back, read again", name
    keys = folder / "keys.json"
    keys.write_text("".join(json.dumps({"id": key}) + "\n" for key in sorted(history.rows)[:2]))
    yield _done(lake, expire_snapshots, name, max_age=0, retain_last=1), name
    erasing: dict[str, Any] = {"keys_uri": str(keys), "history_tables": {name: f"{name}_history"}, "drop_refs": ["*"]}
    yield _done(lake, erase_rows, name, **erasing), name


def _done(lake: Lake, work: TableWork, name: str, needed: bool = True, **options: Any) -> str:
    """Run a job, which must have work to do if ``needed``; return its name."""
    report = run(lake, work, name, **options)
    assert report.outcome == ("done" if needed else "nothing"), (work, report.reason)
    return str(getattr(work, "__name__"))  # noqa: B009


GROUNDS: dict[str, Callable[[Lake, Path, int], Stages]] = {
    "typed": typed,
    "equality": fed,
    "resolved": lambda lake, folder, version: fed(lake, folder, version, deletes="resolved"),
    "merge-on-read": lambda lake, folder, version: fed(lake, folder, version, mode="merge"),
    "copy-on-write": lambda lake, folder, version: fed(lake, folder, version, mode="merge", merge_mode="copy-on-write"),
}
