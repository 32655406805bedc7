"""Check a cluster's executors before a job writes anything."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

#: packages that tasks of every job may import; the extra ``executor`` of ``setup.cfg``
PACKAGES = ("duckdb", "fastavro", "msgspec", "numpy", "pyarrow", "pyiceberg", "pyroaring")
#: further packages by type of source
SOURCE_PACKAGES = {"kafka": ("confluent_kafka",), "mysql": ("pymysql",), "postgres": ("psycopg",)}

_REMEDY = (
    "Ship a packed environment (make cluster-env) with archives, and set PYSPARK_PYTHON to its Python; see "
    "docs/operations/clusters.md."
)


def check_executors(spark: SparkSession, source_type: str | None = None) -> None:
    """Refuse a cluster whose Python cannot run a job's tasks; do nothing on a local master.

    Executors that register later are not checked. Spark itself compares the minor versions of Python.

    :param source_type: type of the spec's source, such as ``postgres``.
    :raises InputError: another version of Python, or none, or missing packages.
    """
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        return
    needed = [*PACKAGES, *SOURCE_PACKAGES.get(source_type or "", ())]
    count = context.defaultParallelism
    try:
        missing = context.parallelize(range(count), count).mapPartitions(partial(_missing, needed)).collect()
    except Exception as error:
        if reason := _explained(str(error)):
            raise InputError(reason, hint=_REMEDY) from error
        raise
    if missing:
        host, packages = missing[0]
        raise InputError(f"The Python of the executor on {host} lacks {', '.join(packages)}.", hint=_REMEDY)
    log.info("The executors' Python has what tasks need")


def _missing(needed: Sequence[str], _: Iterable[int]) -> Iterator[tuple[str, list[str]]]:
    """Yield this machine and its missing packages, if any. Runs in a task."""
    if packages := [name for name in needed if find_spec(name) is None]:
        yield platform.node(), packages


def _explained(text: str) -> str | None:
    """Describe the problem of the executors' Python that failed a task; return None for other causes."""
    here = ".".join(platform.python_version_tuple()[:2])
    if "PYTHON_VERSION_MISMATCH" in text:
        return f"The executors run another minor version of Python than the driver's {here}."
    if "Cannot run program" in text:
        return f"The executors cannot find Python {here}, the driver's version."
    if "No module named" in text:
        name = text.split("No module named", 1)[1].split("'")[1]
        return f"The executors' Python lacks {name}."
    return None
