"""The reference for what tasks make of a batch: each message decoded alone, folded and written by Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from lakecdc.ingest.formats import native
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
            patch.setattr(native, "refusal", lambda *_: "asked for")
            patch.setattr(native, "pack_changes", lambda *_, **__: None)
            patch.setattr(source, "refusal", lambda *_: "asked for")
        yield
