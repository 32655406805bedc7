"""What the executors of a cluster have to have, told before a job writes anything."""

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

#: packages that tasks of every job may import; ``setup.cfg`` has them as the extra ``executor``
PACKAGES = ("duckdb", "msgspec", "numpy", "pyarrow", "pyiceberg", "pyroaring")
#: the same of jobs with such a source
SOURCE_PACKAGES = {"kafka": ("confluent_kafka",), "mysql": ("pymysql",), "postgres": ("psycopg",)}

_REMEDY = (
    "Ship a packed environment (make cluster-env) by archives, and name its Python by the variable PYSPARK_PYTHON; see "
    "docs/clusters.md."
)


def check_executors(spark: SparkSession, source_type: str | None = None) -> None:
    """Refuse a cluster whose Python cannot run a job's tasks; on this machine alone there is nothing to check.

    Executors that register later than this are not asked. Spark compares the minor versions of Python itself.

    :param source_type: type of the spec's source, such as ``postgres``.
    :raises InputError: another version of Python, or none, or packages that are missing.
    """
    context = spark.sparkContext
    if str(context.master).startswith("local"):
        return
    needed = [*PACKAGES, *SOURCE_PACKAGES.get(source_type or "", ())]
    count = context.defaultParallelism
    try:
        missing = context.parallelize(range(count), count).mapPartitions(partial(_missing, needed)).collect()
    except Exception as error:
        if told := _explained(str(error)):
            raise InputError(told, hint=_REMEDY) from error
        raise
    if missing:
        host, packages = missing[0]
        raise InputError(f"The Python of the executor on {host} lacks {', '.join(packages)}.", hint=_REMEDY)
    log.info("The executors' Python has what tasks need")


def _missing(needed: Sequence[str], _: Iterable[int]) -> Iterator[tuple[str, list[str]]]:
    """Run in a task: this machine and the packages that it lacks, if there are any."""
    if packages := [name for name in needed if find_spec(name) is None]:
        yield platform.node(), packages


def _explained(text: str) -> str | None:
    """What is wrong with the executors' Python, if that is why a task has failed."""
    here = ".".join(platform.python_version_tuple()[:2])
    if "PYTHON_VERSION_MISMATCH" in text:
        return f"The executors run another minor version of Python than the driver, which runs {here}."
    if "Cannot run program" in text:
        return f"The executors do not find their Python, which has to be {here} like the driver's."
    if "No module named" in text:
        name = text.split("No module named", 1)[1].split("'")[1]
        return f"The executors' Python lacks {name}."
    return None
