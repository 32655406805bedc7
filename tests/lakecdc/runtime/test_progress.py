"""Frequency and content of progress lines."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest

from lakecdc.iceberg.core_time import CoreTime
from lakecdc.iceberg.threads import described
from lakecdc.runtime.progress import ProgressLog, log_long_stages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GB = 1024**3


def progress(total: int, total_bytes: int, caplog: pytest.LogCaptureFixture) -> tuple[ProgressLog, list[float]]:
    """Return the progress log of a table and its clock."""
    caplog.set_level("INFO", "lakecdc.runtime.progress")
    clock = [100.0]
    return ProgressLog("db.t", "file groups", total, total_bytes, lambda: clock[0]), clock


def test_progress_is_logged_every_half_minute_and_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    work, clock = progress(40, 10 * GB, caplog)
    for _ in range(40):
        clock[0] += 9
        work.add(1, GB // 4)
    assert len(caplog.messages) == 10
    assert caplog.messages[0] == "progress of db.t: 4 of 40 file groups, 1.0 of 10.0 GB, about 5 minutes left"
    assert caplog.messages[-1] == "progress of db.t: 40 of 40 file groups, 10.0 of 10.0 GB, in 6 minutes"


def test_work_of_unknown_size_is_measured_in_pieces(caplog: pytest.LogCaptureFixture) -> None:
    work, clock = progress(3, 0, caplog)
    clock[0] += 5400
    work.add(1)
    work.add(1)
    work.add(1)
    assert caplog.messages == [
        "progress of db.t: 1 of 3 file groups, about 3.0 hours left",
        "progress of db.t: 3 of 3 file groups, in 1.5 hours",
    ]


def test_a_long_stage_is_reported_with_its_table_while_it_runs(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lakecdc.runtime.progress")

    def slow(seconds: float) -> float:
        time.sleep(seconds)
        return seconds

    with log_long_stages(spark.sparkContext, CoreTime(spark), pace=0.2):
        with described(spark, "shop.orders", "sort_data_files"):
            # Spark counts a task that has ended within 0.1 s of another event with the next one
            spark.sparkContext.parallelize([0, 0.5, 2], 3).map(slow).collect()
        # the monitor sees that the stage is over
        spark.sparkContext.parallelize([0, 1], 2).map(slow).collect()
    (stage,) = {
        match[1]
        for message in caplog.messages
        if (
            match := re.fullmatch(
                r"progress of sort_data_files shop\.orders: (stage \d+), 2 of 3 tasks are done", message
            )
        )
    }
    assert f"progress of sort_data_files shop.orders: {stage} is over" in caplog.messages
    assert any(message.startswith("progress of Spark: stage ") for message in caplog.messages)
    count = len(caplog.messages)
    spark.sparkContext.parallelize([0, 1], 2).map(slow).collect()
    assert len(caplog.messages) == count
