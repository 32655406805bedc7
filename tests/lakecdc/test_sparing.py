"""Processes of their own, since pandas may be in this one already."""

from __future__ import annotations

import subprocess
import sys

import pytest

DRIVER = """
from lakecdc.sparing import without_pandas
with without_pandas():
    import pyspark.testing.utils
from pyspark.sql.types import NumpyScalarConverter
assert NumpyScalarConverter().can_convert(1) is False
"""
WORKER = """
import pyarrow as pa
from lakecdc.worker import duckdb_of_its_own
with duckdb_of_its_own() as connection, duckdb_of_its_own() as other:
    for each in (connection, other):
        each.register("rows", pa.table({"id": [1, 2]}))
        assert each.execute("SELECT sum(id) FROM rows").fetchall() == [(3,)]
"""
WANTED = """
import pandas
from lakecdc.sparing import without_pandas
with without_pandas():
    assert sys.modules["pandas"] is pandas
"""


def run(text: str) -> None:
    subprocess.run([sys.executable, "-c", f"import sys\n{text}"], check=True, timeout=60)


@pytest.mark.parametrize("text", [DRIVER, WORKER])
def test_nobody_imports_pandas_and_everybody_still_can(text: str) -> None:
    run(f"{text}\nassert 'pandas' not in sys.modules\nimport pandas\nassert pandas.DataFrame([1]).size == 1")


def test_it_is_left_alone_where_it_is_wanted() -> None:
    run(WANTED)
