"""The reference for what tasks make of a batch: its events, looked through first, folded and written by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakecdc.ingest.change import Rows
from lakecdc.ingest.engine import decode, decode_messages
from lakecdc.ingest.engine.decoding import Decoding
from lakecdc.ingest.engine.log import LogFold, LogRows
from lakecdc.ingest.engine.run import EngineResult, FoldPlan, SecondPassError, judge_events
from lakecdc.ingest.sources.log import source
from tests.on_demand import on_demand

#: what folds and writes the changes of a batch
ENGINES = ("tasks", "spark")
#: a test that holds for both of them; by Spark on demand
both_engines = pytest.mark.parametrize("engine", on_demand(ENGINES, in_ci=("tasks",)), indirect=True)


@contextmanager
def made_by(engine: str) -> Iterator[None]:
    """Have changes folded and written by tasks, as always, or all of them by Spark.

    :param engine: one of :data:`ENGINES`.
    """
    with pytest.MonkeyPatch.context() as patch:
        if engine == "spark":
            patch.setattr(decode, "check_fields", _refuse)
            patch.setattr(decode_messages, "judge_events", _unfolded)
            patch.setattr(source, "LogFold", _LogUnfolded)
        yield


class _LogUnfolded(LogFold):
    def run(self) -> LogRows:
        layout = replace(self.layout, folds=False)
        of = (self.cells, layout, self.size, self.target, self.partition_by, self.epoch, self.cached)
        found = LogFold(*of).run()
        return replace(found, rows=Rows(found.rows.frame))


def _refuse(*_arguments: Any) -> None:
    raise SecondPassError("asked for")


def _unfolded(messages: DataFrame, decoding: Decoding, plan: FoldPlan) -> EngineResult:
    made = judge_events(messages, decoding, replace(plan, every=True, folds=False))
    assert made.rows is not None
    return replace(made, rows=Rows(made.rows.frame))  # type: ignore[arg-type]
