"""The reference for task results: Spark scans a batch, then folds and writes its events."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakecdc.ingest.change import Rows
from lakecdc.ingest.engine import decode, decode_messages
from lakecdc.ingest.engine.decoded import Request
from lakecdc.ingest.engine.decoding import Decoding
from lakecdc.ingest.engine.log import LogFold, LogRows
from lakecdc.ingest.engine.run import EngineResult, SecondPassError, judge_events
from lakecdc.ingest.sources.log import source
from tests.on_demand import on_demand

#: the engines that fold and write the changes of a batch
ENGINES = ("tasks", "spark")
#: a test for both engines; Spark on demand
both_engines = pytest.mark.parametrize("engine", on_demand(ENGINES, in_ci=("tasks",)), indirect=True)


@contextmanager
def with_engine(engine: str) -> Iterator[None]:
    """Fold and write changes in tasks, as always, or all of them in Spark.

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
        folded = LogFold(*of).run()
        return replace(folded, rows=Rows(folded.rows.frame))


def _refuse(*_arguments: Any) -> None:
    raise SecondPassError("required by the test")


def _unfolded(messages: DataFrame, decoding: Decoding, request: Request, **options: Any) -> EngineResult:
    judged = judge_events(messages, decoding, request, **{**options, "folds": False})
    assert judged.rows is not None
    return replace(judged, rows=Rows(judged.rows.frame))  # type: ignore[arg-type]
