"""Runs of the job, planted differences and expected reports."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.reconcile.job import reconcile
from lakecdc.runtime.run import run
from tests.conftest import Lake

#: without waiting
AT_ONCE = {"max_wait": 0.0, "report_values": True}
Difference = tuple[str, str, tuple[str, ...]]
#: by id: changes of the table's row, as SQL by column
SPOILT = {
    20: {"v": "'wrong'"},
    21: {"v": "''"},
    28: {"v": "NULL"},
    22: {"n": "0"},
    23: {"doc": "''"},
    24: {"day": "DATE '2026-02-02'"},
    25: {"v": "'wrong'"},
    26: {"v": "'wrong'"},
}
DELETED, DOUBLED = (30, 31, 32), 40
#: ids of copied rows in the table
UNEXPECTED = (5000, 5001, 5002)


def reconciled(lake: Lake, source: dict[str, Any], target: dict[str, Any], **options: Any) -> TableReport:
    """Compare one table with its source; return its report."""
    document = lake.spec("reconcile", source=source, target=target, options={**AT_ONCE, **options})
    report = run(parse_spec(document), reconcile)
    assert not report.error, report.error
    return report.tables[0]


def differences(report: TableReport) -> list[Difference]:
    """Return kind, key and columns of the differences, sorted."""
    assert "differences" in report.metrics, report.reason
    rows = report.metrics["differences"]
    by_kind = Counter(row["kind"] for row in rows)
    assert {kind: report.metrics[kind] for kind in by_kind} == by_kind
    return sorted((row["kind"], row["key"], tuple(row["columns"])) for row in rows)


def spoil(lake: Lake, name: str, mode: str = "upsert") -> int:
    """Plant differences of every kind; return their number.

    :param mode: mode of the table's ingestion.
    """
    cases = {
        column: "".join(f" WHEN {key} THEN {of[column]}" for key, of in SPOILT.items() if column in of)
        for column in ("v", "n", "doc", "day")
    }
    sets = ", ".join(f"{column} = CASE id{case} ELSE {column} END" for column, case in cases.items())
    lake.sql(f"UPDATE lake.{name} SET {sets} WHERE id IN {tuple(SPOILT)}")
    lake.sql(f"DELETE FROM lake.{name} WHERE id IN {DELETED}")
    copies = ", ".join(map(str, (DOUBLED, *UNEXPECTED)))
    lake.sql(
        f"INSERT INTO lake.{name} SELECT s.* FROM (SELECT explode(array({copies})) AS id, * EXCEPT (id) "
        f"FROM lake.{name} WHERE id = {DOUBLED}) s"
    )
    if mode == "merge":
        # a MERGE never duplicates a row
        lake.sql(f"DELETE FROM lake.{name} WHERE id = {DOUBLED}")
    return len(SPOILT) + len(DELETED) + 1 + len(UNEXPECTED)
