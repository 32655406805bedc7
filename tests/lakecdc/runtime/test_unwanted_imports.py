"""Imports of pandas, tested in separate processes because this one may have imported pandas."""

from __future__ import annotations

import subprocess
import sys

import pytest

DRIVER = """
from lakecdc.runtime.worker import without_pandas
with without_pandas():
    import pyspark.testing.utils
from pyspark.sql.types import NumpyScalarConverter
assert NumpyScalarConverter().can_convert(1) is False
"""
WORKER = """
import pyarrow as pa
from lakecdc.runtime.worker import open_duckdb
with open_duckdb() as connection, connection.cursor() as other:
    for each in (connection, other):
        each.register("rows", pa.table({"id": [1, 2]}))
        assert each.execute("SELECT sum(id) FROM rows").fetchall() == [(3,)]
"""
FILES = """
from lakecdc.iceberg.file_io import source
source({}, __import__("os").devnull).open()
"""
IMPORTS_PANDAS = """
import pandas
from lakecdc.runtime.worker import without_pandas
with without_pandas():
    assert sys.modules["pandas"] is pandas
"""
THREADS = """
import threading, time
from lakecdc.runtime.worker import without_pandas
failed = []
def work(seconds):
    try:
        with without_pandas():
            time.sleep(seconds)
            import pandas
    except ImportError:
        return
    failed.append(seconds)
# the first thread to leave must not make pandas visible to the other
threads = [threading.Thread(target=work, args=[seconds]) for seconds in (0.1, 0.5)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not failed, failed
"""


def run(text: str) -> None:
    subprocess.run([sys.executable, "-c", f"import sys\n{text}"], check=True, timeout=60)


@pytest.mark.parametrize("text", [DRIVER, WORKER, FILES, THREADS])
def test_no_module_imports_pandas_and_users_still_can(text: str) -> None:
    run(f"{text}\nassert 'pandas' not in sys.modules\nimport pandas\nassert pandas.DataFrame([1]).size == 1")


def test_an_imported_pandas_stays() -> None:
    run(IMPORTS_PANDAS)
