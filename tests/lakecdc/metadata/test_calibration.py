"""Guesses are corrected by what jobs have taken."""

from __future__ import annotations

import random

import pytest

from lakecdc.metadata.calibration import Calibration, Run, calibrated

SORT = "sort_data_files"


def runs(table: str, *ratios: float, job: str = SORT) -> list[Run]:
    return [Run(job, table, 10.0, 10.0 * ratio) for ratio in ratios]


def test_a_table_takes_its_share_of_what_the_job_takes_elsewhere() -> None:
    found = calibrated([*(run for n in range(9) for run in runs(f"a{n}", 2.0)), *runs("wide", *[6.0] * 7)])
    assert found.corrected(SORT, "new", 10.0) == 20.0
    # the more runs it has, the more they say
    assert 50.0 < found.corrected(SORT, "wide", 10.0) < 60.0
    once = calibrated([*(run for n in range(9) for run in runs(f"a{n}", 2.0)), *runs("wide", 6.0)])
    assert 20.0 < once.corrected(SORT, "wide", 10.0) < 40.0
    assert found.corrected("compact_data_files", "wide", 10.0) == 10.0


def test_a_disturbed_run_is_not_counted() -> None:
    found = calibrated([*runs("a", 2.0, 2.0, 90.0, 2.0), *runs("b", 2.0, 2.0)])
    assert found.corrected(SORT, "a", 10.0) == found.corrected(SORT, "new", 10.0) == 20.0


def test_the_newest_runs_of_a_table_count() -> None:
    found = calibrated(runs("a", *[3.0] * 8, *[1.0] * 50))
    assert found.corrected(SORT, "a", 1.0) == 3.0


def test_the_newest_runs_of_a_job_count_and_none_of_its_tables_for_all() -> None:
    found = calibrated(
        [*runs("a", *[9.0] * 50), *(run for n in range(92) for run in runs(f"b{n}", 2.0)), *runs("c", 5)]
    )
    assert found.corrected(SORT, "new", 1.0) == 2.0
    newest = calibrated([*(run for n in range(100) for run in runs(f"b{n}", 2.0)), *runs("c", *[9.0] * 200)])
    assert newest.by_job[SORT].factor == 2.0


def test_what_grows_otherwise_than_it_is_guessed_is_learnt() -> None:
    draw = random.Random(1)
    guesses = [draw.uniform(0.02, 2) for _ in range(60)]
    known = [Run(SORT, f"t{n}", guess, 1.5 * guess**0.7 * draw.uniform(0.9, 1.1)) for n, guess in enumerate(guesses)]
    found = calibrated(known)
    for guess in (0.05, 0.5, 3.0):
        assert found.corrected(SORT, "new", guess) == pytest.approx(1.5 * guess**0.7, rel=0.1)
    # from few runs, or from runs that are all alike, no more is learnt than a factor
    assert calibrated(known[:9]).by_job[SORT].exponent == 1.0
    alike = [Run(SORT, f"t{n}", 1.0 + n / 100, 2.0 + n % 3) for n in range(60)]
    assert calibrated(alike).by_job[SORT].exponent == 1.0


def test_runs_that_tell_nothing_do_not_count() -> None:
    assert calibrated([Run("j", "a", 0.0, 5.0), Run("j", "a", 5.0, 0.0)]) == Calibration()
