"""Guesses are corrected by what jobs have taken."""

from __future__ import annotations

from lakecdc.metadata.calibration import Calibration, Run, calibrated


def runs(table: str, *ratios: float, job: str = "sort_data_files") -> list[Run]:
    return [Run(job, table, 10.0, 10.0 * ratio) for ratio in ratios]


def test_a_table_that_is_known_has_its_own_factor_and_others_that_of_the_job() -> None:
    found = calibrated([*runs("a", 2.0, 2.2, 9.0), *runs("b", 0.5)])
    assert found.corrected("sort_data_files", "a", 10.0) == 22.0
    assert found.corrected("sort_data_files", "b", 10.0) == found.corrected("sort_data_files", "new", 10.0) == 21.0
    assert found.corrected("compact_data_files", "a", 10.0) == 10.0


def test_the_newest_runs_of_a_table_count() -> None:
    found = calibrated(runs("a", *[3.0] * 8, *[1.0] * 50))
    assert found.corrected("sort_data_files", "a", 1.0) == 3.0


def test_the_newest_runs_of_a_job_count_for_tables_of_which_too_little_is_known() -> None:
    found = calibrated([*(run for n in range(20) for run in runs(f"a{n}", 2.0)), *runs("b", *[9.0] * 100)])
    assert found.corrected("sort_data_files", "new", 1.0) == 2.0
    assert found.corrected("sort_data_files", "b", 1.0) == 9.0


def test_runs_that_tell_nothing_do_not_count() -> None:
    assert calibrated([Run("j", "a", 0.0, 5.0), Run("j", "a", 5.0, 0.0)]) == Calibration()
