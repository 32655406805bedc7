"""Cost estimates are corrected by the measured cost of earlier runs."""

from __future__ import annotations

import random

import pytest

from lakecdc.metadata.calibration import Calibration, Run, calibrate

SORT = "sort_data_files"


def runs(table: str, *ratios: float, job: str = SORT) -> list[Run]:
    return [Run(job, table, 10.0, 10.0 * ratio) for ratio in ratios]


def test_estimates_combine_runs_of_the_table_and_of_the_job() -> None:
    calibration = calibrate([*(run for n in range(9) for run in runs(f"a{n}", 2.0)), *runs("wide", *[6.0] * 7)])
    assert calibration.predict(SORT, "new", 10.0) == 20.0
    # the more runs a table has, the more they count
    assert 50.0 < calibration.predict(SORT, "wide", 10.0) < 60.0
    once = calibrate([*(run for n in range(9) for run in runs(f"a{n}", 2.0)), *runs("wide", 6.0)])
    assert 20.0 < once.predict(SORT, "wide", 10.0) < 40.0
    assert calibration.predict("compact_data_files", "wide", 10.0) == 10.0


def test_a_disturbed_run_is_not_counted() -> None:
    calibration = calibrate([*runs("a", 2.0, 2.0, 90.0, 2.0), *runs("b", 2.0, 2.0)])
    assert calibration.predict(SORT, "a", 10.0) == calibration.predict(SORT, "new", 10.0) == 20.0


def test_only_the_newest_runs_of_a_table_count() -> None:
    calibration = calibrate(runs("a", *[3.0] * 8, *[1.0] * 50))
    assert calibration.predict(SORT, "a", 1.0) == 3.0


def test_only_the_newest_runs_of_a_job_count_and_no_table_dominates() -> None:
    calibration = calibrate(
        [*runs("a", *[9.0] * 50), *(run for n in range(92) for run in runs(f"b{n}", 2.0)), *runs("c", 5)]
    )
    assert calibration.predict(SORT, "new", 1.0) == 2.0
    newest = calibrate([*(run for n in range(100) for run in runs(f"b{n}", 2.0)), *runs("c", *[9.0] * 200)])
    assert newest.by_job[SORT].factor == 2.0


def test_nonlinear_growth_of_cost_is_learned() -> None:
    draw = random.Random(1)
    guesses = [draw.uniform(0.02, 2) for _ in range(60)]
    known = [Run(SORT, f"t{n}", guess, 1.5 * guess**0.7 * draw.uniform(0.9, 1.1)) for n, guess in enumerate(guesses)]
    calibration = calibrate(known)
    for guess in (0.05, 0.5, 3.0):
        assert calibration.predict(SORT, "new", guess) == pytest.approx(1.5 * guess**0.7, rel=0.1)
    # from few or similar runs only a factor is learned
    assert calibrate(known[:9]).by_job[SORT].exponent == 1.0
    alike = [Run(SORT, f"t{n}", 1.0 + n / 100, 2.0 + n % 3) for n in range(60)]
    assert calibrate(alike).by_job[SORT].exponent == 1.0


def test_runs_without_cost_or_estimate_do_not_count() -> None:
    assert calibrate([Run("j", "a", 0.0, 5.0), Run("j", "a", 5.0, 0.0)]) == Calibration()
