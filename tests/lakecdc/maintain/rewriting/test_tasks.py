"""Tasks that each read all files of a unit write its rows once and prove their finished files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakecdc.maintain.rewriting.placing import Placing
from lakecdc.maintain.rewriting.ranges import Range, shared
from lakecdc.maintain.rewriting.row_hash import summed
from lakecdc.maintain.rewriting.tasks import ReadBackTask, RewriteTask, Source
from lakecdc.maintain.run_order import RunField, RunOrder
from lakecdc.metadata.file_facts import FileFacts
from lakecdc.reader.projection import ReadColumn
from lakecdc.writer.parquet import ArrowFile, FileColumn, FileLayout

COLUMNS = (ReadColumn(1, "id", "long", True), ReadColumn(2, "v", "string", False))
FILES, ROWS, OUTPUTS = 3, 400, 5


def rewritten(folder: Path, readers: int) -> list[dict[str, Any]]:
    """Sort files with ids of the whole range; return the results of the tasks."""
    layout = FileLayout(str(folder), {}, tuple(FileColumn(c.id, c.name, c.type, c.required, c.name) for c in COLUMNS))
    ranges = []
    for number in range(FILES):
        ids = [(row * 7 % ROWS) * FILES + number for row in range(ROWS)]
        file = ArrowFile(layout)
        file.write(pa.table({"id": ids, "v": [f"v{n % 9}" for n in ids]}))
        facts = FileFacts(file.location or "", 0, "", file.close(), 1, ROWS, 0)
        ranges.append(Range(0, 0, facts, 0, ROWS))
    cuts = [(1, FILES * ROWS * number // OUTPUTS) for number in range(1, OUTPUTS)]
    task = RewriteTask(
        Source(COLUMNS, {}),
        layout,
        ("id", "v"),
        ("id", "v"),
        False,
        1024,
        Placing(RunOrder((RunField("id"),)), {0: cuts}, {0: [(1, 300), (1, 700)]}),
    )
    rows = [
        {
            **{name: getattr(one, name) for name in ("unit", "output", "from_file", "to_file", "counted")},
            **{"first": one.first, "last": one.last, "place": place, "number": place, "records": ROWS},
            **{"location": one.file.location, "deletes": [], "constants": None},
        }
        for place, one in enumerate(shared(ranges, OUTPUTS, readers))
    ]
    return [result for batch in task([pa.RecordBatch.from_pylist(rows)]) for result in batch.to_pylist()]


def read_back(results: list[dict[str, Any]]) -> tuple[int, int]:
    """Return the number and hash of the rows in the finished files."""
    files = pa.RecordBatch.from_pydict({"location": of_kind(results, "written", "location")})
    ((rows, total),) = [tuple(b.to_pylist()[0].values()) for b in ReadBackTask(("id", "v"), {})([files])]
    return rows, total


def of_kind(results: list[dict[str, Any]], kind: str, fact: str) -> list[Any]:
    return [one[fact] for one in results if one["kind"] == kind]


@pytest.mark.parametrize("readers", [1, 2, 5])
def test_each_row_is_counted_once_and_in_one_file(tmp_path: Path, readers: int) -> None:
    results = rewritten(tmp_path, readers)
    assert of_kind(results, "read", "rows") == [ROWS] * FILES
    assert of_kind(results, "written", "number") == list(range(OUTPUTS))
    files = [pq.read_table(location) for location in of_kind(results, "written", "location")]
    assert pa.concat_tables(files)["id"].to_pylist() == list(range(FILES * ROWS))
    assert read_back(results) == (FILES * ROWS, summed(of_kind(results, "read", "hash")))


def exchanged(rows: pa.Table) -> pa.Table:
    """Swap the texts of neighbours, so that each column keeps its values."""
    places = [place ^ 1 for place in range(rows.num_rows // 2 * 2)]
    return rows.slice(0, len(places)).set_column(1, rows.field(1), rows["v"].take(places))


@pytest.mark.parametrize(
    ("harm", "rows"),
    [
        (exchanged, FILES * ROWS),
        (lambda rows: pa.concat_tables([rows.slice(0, 1), rows.slice(0, rows.num_rows - 1)]), FILES * ROWS),
        (lambda rows: rows.slice(1), FILES * ROWS - OUTPUTS),
    ],
    ids=["exchanged", "twice", "lost"],
)
def test_a_modified_file_is_detected(tmp_path: Path, harm: Callable[[pa.Table], pa.Table], rows: int) -> None:
    results = rewritten(tmp_path, 2)
    for location in of_kind(results, "written", "location"):
        pq.write_table(harm(pq.read_table(location)), location)
    count, total = read_back(results)
    assert count == rows and total != summed(of_kind(results, "read", "hash"))
