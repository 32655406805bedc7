"""Progress, report and the splitting of logs."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from demo.compare import Comparison
from demo.dags import DemoError
from demo.jvm import FastStart
from demo.progress import Progress
from demo.report import build, show
from demo.runner import split_by_task
from demo.settings import Settings

FIGURES = {
    "shop.orders": {
        "data_files": 24,
        "equality_deletes": 8,
        "position_deletes": 4,
        "deletion_vectors": 0,
        "scan_seconds": 1.234,
        "point_seconds": 0.5,
    }
}


EQUAL = {"outcome": "nothing", "reason": "all 10 rows compared equal the source"}


def printed(comparison: Comparison, reconciled: dict[str, str] = EQUAL) -> tuple[bool, str]:
    """Return whether the report finds everything equal, and its output."""
    console = Console(file=io.StringIO(), width=80)
    comparisons = {"shop.orders": comparison}
    report = build(Settings(), 1.0, (FIGURES, FIGURES), comparisons, {"shop.orders": reconciled})
    show(console, report)
    return report["equal_to_source"], console.file.getvalue()  # type: ignore[attr-defined]


def test_report_shows_files_by_kind_and_seconds() -> None:
    equal, text = printed(Comparison(10, 10))
    assert equal
    before = next(line for line in text.splitlines() if "before" in line)
    after = next(line for line in text.splitlines() if "after" in line)
    assert before.split() == ["shop.orders", "before", "24", "8", "4", "0", "1.23", "0.50"]
    assert after.split() == ["after", *before.split()[2:], "10", "yes"]


def test_report_lists_differences() -> None:
    equal, text = printed(Comparison(10, 11, missing=1, differences=("only at the source: (7, x)",)))
    assert not equal
    assert "NO" in text
    assert "1 rows are missing, 0 are too many" in text
    assert "only at the source: (7, x)" in text


def test_report_shows_mismatches_of_reconcile() -> None:
    reason = "rows differ from the source: 1 different"
    equal, text = printed(Comparison(10, 10), {"outcome": "skipped", "reason": reason})
    assert not equal
    assert "NO" in text
    assert f"reconcile: {reason}" in text
    assert "missing" not in text


def test_steps_are_shown_while_they_run() -> None:
    console = Console(file=io.StringIO(), width=200)
    progress = Progress(console, 2)
    with progress.step("first") as facts:
        assert "[ 1/2] first ..." in console.file.getvalue()  # type: ignore[attr-defined]
        facts.append("7 rows")
    assert "7 rows" in console.file.getvalue()  # type: ignore[attr-defined]


def test_excerpt_shows_errors_before_chatter(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("INFO a\nERROR the disk is full\n" + "INFO b\n" * 50)
    assert DemoError("x", log).excerpt() == "ERROR the disk is full"
    log.write_text("INFO a\n" * 50)
    assert DemoError("x", log).excerpt(3) == "INFO a\nINFO a\nINFO a"
    assert DemoError("x", tmp_path / "none.log").excerpt() == ""


def test_output_is_split_by_task() -> None:
    text = "\n".join(
        [
            "before",
            "[DAG TEST] starting task_id=a map_index=0",
            "of a",
            "[DAG TEST] end task task_id=a map_index=0",
            "[DAG TEST] starting task_id=b map_index=-1",
            "of b",
            "[DAG TEST] end task task_id=b map_index=-1",
        ]
    )
    assert list(split_by_task(text)) == [("a", "0", "of a\n"), ("b", "-1", "of b\n")]


def test_the_class_archive_is_recorded_used_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    settings = Settings(folder=tmp_path)
    settings.airflow_home.mkdir()
    options, archive = settings.airflow_home / "jvm.options", settings.airflow_home / "spark-classes.jsa"
    fast_start = FastStart(settings)
    assert str(options) in fast_start.option
    fast_start.record()
    assert f"-XX:ArchiveClassesAtExit={archive}" in options.read_text()
    # a killed application leaves none
    fast_start.use()
    assert str(archive) not in options.read_text()
    archive.touch()
    fast_start.use()
    assert f"-XX:SharedArchiveFile={archive}" in options.read_text()
    fast_start.forget()
    assert str(archive) not in options.read_text()
    assert not archive.exists()
