"""A table fed from files of rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.ingest.job import ingest
from lakecdc.runtime.run import run
from tests.conftest import Lake


class Fed:
    """One table, its folder of files and its quarantine.

    :param source: settings of the source besides the path.
    """

    def __init__(self, lake: Lake, folder: Path) -> None:
        self.lake, self.folder = lake, folder
        self.name, self.quarantine = lake.new_name("rows"), lake.new_name("quarantine")
        self.source: dict[str, Any] = {"format": "csv"}
        self.target: dict[str, Any] = {"key": ["id"]}

    def write(self, name: str, *lines: str) -> None:
        """Write a file of lines."""
        (self.folder / name).write_text("".join(line + "\n" for line in lines))

    def spec(self, job: str = "ingest", **options: Any) -> dict[str, Any]:
        """Return the spec document."""
        source = {"type": "files", "path": f"{self.folder}/*.*", **self.source}
        options = {"quarantine_table": self.quarantine, "max_quarantined_fraction": 1.0, **options}
        return self.lake.spec(job, source=source, target={"table": self.name, **self.target}, options=options)

    def run(self, job: str = "ingest", outcome: str = "done", **options: Any) -> TableReport:
        """Run the job and return the table's report."""
        report = run(parse_spec(self.spec(job, **options)), ingest)
        assert not report.error, report.error
        assert report.tables[0].outcome == outcome, report.tables[0].reason
        return report.tables[0]

    def rows(self, columns: str, table: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows that DuckDB reads, sorted."""
        return sorted(self.lake.duckdb_rows(table or self.name, columns), key=str)

    def quarantined(self) -> list[tuple[str, str]]:
        """Return rule and raw record of each quarantined row."""
        return [(rule, raw.decode()) for rule, raw in self.rows("rule, raw_value", self.quarantine)]


@pytest.fixture
def fed(lake: Lake, tmp_path: Path) -> Fed:
    """Return a table that was never fed."""
    (tmp_path / "in").mkdir()
    return Fed(lake, tmp_path / "in")
