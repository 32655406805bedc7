"""Lines of a job's output that are folded in the task's log."""

from __future__ import annotations

import pytest

from airflow_provider_lakecdc.submit.spark_submit import CLOSE, OPEN, JobOutput, without_warnings

IVY = ":: loading settings :: url = jar:file:/x.jar!/ivysettings.xml"
INFO = "26/11/23 06:20:44 INFO SparkContext: Running Spark version 4.1.3"
WARN = "26/11/23 06:20:44 WARN TaskSetManager: Lost task 0.0"
OURS = "2026-11-23 06:20:45,123 INFO lakecdc.runtime.run: shop.orders: done"


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        ([OURS], [OURS]),
        ([IVY, INFO, OURS], [OPEN, IVY, INFO, CLOSE, OURS]),
        ([WARN, IVY, "\tconfs: [default]", OURS], [WARN, OPEN, IVY, "\tconfs: [default]", CLOSE, OURS]),
        (
            [INFO, "\tof the line before", OURS, "  and this"],
            [OPEN, INFO, "\tof the line before", CLOSE, OURS, "  and this"],
        ),
        (
            [WARN, "java.io.IOException: x", "\tat y", INFO],
            [WARN, "java.io.IOException: x", "\tat y", OPEN, INFO, CLOSE],
        ),
        (
            [INFO, 'Exception in thread "main" x', "\tat y"],
            [OPEN, INFO, CLOSE, 'Exception in thread "main" x', "\tat y"],
        ),
        ([INFO, "Traceback (most recent call last):"], [OPEN, INFO, CLOSE, "Traceback (most recent call last):"]),
        ([INFO, "spark-class: line 1: 7 Killed java"], [OPEN, INFO, CLOSE, "spark-class: line 1: 7 Killed java"]),
        ([], []),
    ],
)
def test_sparks_chatter_is_folded(lines: list[str], shown: list[str]) -> None:
    assert list(JobOutput().fold(lines)) == shown


def test_the_last_lines_are_shown_if_there_are_only_sparks() -> None:
    output = JobOutput()
    list(output.fold([WARN, *[INFO] * 50]))
    assert output.last_lines == [WARN]
    silent = JobOutput()
    list(silent.fold([INFO] * 50))
    assert silent.last_lines == [INFO] * 20


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("2026-11-23 06:20:45,123 INFO lakecdc.runtime.run: Spark UI at http://worker:4040\n", ["http://worker:4040"]),
        # text in a row or of another library is not the job's
        ("2026-11-23 06:20:45,123 WARNING lakecdc.runtime.run: shop.orders: Spark UI at http://elsewhere", []),
        ("2026-11-23 06:20:45,123 INFO py4j: Spark UI at http://elsewhere", []),
        ("Spark UI at http://elsewhere\n", []),
        (f"{INFO}: Spark UI at http://elsewhere\n", []),
    ],
)
def test_progress_of_the_job_reaches_its_listeners(line: str, expected: list[str]) -> None:
    reported: list[str] = []
    assert line in list(JobOutput({"Spark UI at ": reported.append, "Spark keeps": lambda _: None}).fold([line]))
    assert reported == expected


def test_errors_of_the_job_are_errors_in_the_tasks_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    failed = OURS.replace("INFO", "ERROR").replace("done", "failed: It is gone.")
    # a warning of Spark does not affect the job's outcome
    assert list(without_warnings([OURS, f"{failed}\n", WARN])) == [OURS, WARN]
    assert [(record.levelname, record.message) for record in caplog.records] == [("ERROR", failed)]
