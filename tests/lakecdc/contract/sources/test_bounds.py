"""Invalid bounds of a source are refused before anything is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource

POSTGRES, FILES = PostgresSource("host=h", "slot"), FilesSource("/in", "json")


def changed(source: Any, name: str, number: int) -> Any:
    """Return the source with other bounds."""
    return replace(source, **{name: number})


@pytest.mark.parametrize("name", ["max_batch_events", "chunk_bytes", "full_load_parallelism"])
def test_required_postgres_bounds(name: str) -> None:
    with pytest.raises(SpecError, match=f"source.{name} is 0"):
        changed(POSTGRES, name, 0)


@pytest.mark.parametrize("name", ["max_batch_bytes", "max_batch_seconds", "max_slot_lag_bytes"])
def test_optional_postgres_bounds(name: str) -> None:
    changed(POSTGRES, name, 0)
    with pytest.raises(SpecError, match=f"source.{name} is -1"):
        changed(POSTGRES, name, -1)


@pytest.mark.parametrize("name", ["max_batch_bytes", "max_files_per_run", "forget_gone_files"])
def test_file_bounds(name: str) -> None:
    changed(FILES, name, 0)
    with pytest.raises(SpecError, match=f"source.{name} is -1"):
        changed(FILES, name, -1)


def test_mysql_bounds() -> None:
    mysql = MysqlSource("h", "u")
    for name in ("max_batch_bytes", "max_batch_seconds"):
        changed(mysql, name, 0)
    for name, number in {"max_batch_events": 0, "max_batch_bytes": -1, "max_batch_seconds": -1}.items():
        with pytest.raises(SpecError, match=f"source.{name} is {number}"):
            changed(mysql, name, number)
