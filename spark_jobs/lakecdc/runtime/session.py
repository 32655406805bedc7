"""The one place where a SparkSession and its catalog settings are made."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakecdc.contract import runtime
from lakecdc.contract.errors import InputError, SourceUnavailableError
from lakecdc.contract.secrets import REDACTION_PATTERN, resolve
from lakecdc.contract.spec import Catalog
from lakecdc.runtime.unwanted_imports import without_pandas
from lakecdc.runtime.worker import TASK_MEMORY

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_SETTINGS = {
    "spark.sql.extensions": runtime.EXTENSIONS,
    "spark.sql.session.timeZone": "UTC",
    # a cast that does not fit must stop the job, never become null
    "spark.sql.ansi.enabled": "true",
    # Spark's copy of a table is 30 s old otherwise, and jobs read what they have just committed
    "spark.sql.iceberg.locality.enabled": "false",
    # pyspark notes the line of every column expression, which costs two to four milliseconds each time
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_UNLESS_GIVEN = {
    # each batch and table repeats the same queries, and Spark's hundred classes are fewer than those of one batch
    "spark.sql.codegen.cache.maxEntries": "2000",
}
_REDACTION = "spark.redaction.regex"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_MEBIBYTES = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}
_LOCAL_CORES = re.compile(r"local(?:\[(\d+|\*)(?:,.*)?\])?")
_BY_HAND = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "WARN",
    "spark.sql.shuffle.partitions": "8",
}


def open_session(catalog: Catalog, name: str, packages: Sequence[str] = ()) -> SparkSession:
    """Make the session of a job, or take over the one that runs already.

    Under spark-submit the jars are on the class path already and the operator's settings win; by hand the session
    brings its own jars and runs on the cores of this machine.

    :param catalog: the catalog the job works on; references are resolved here and go into the session only.
    :param name: application name.
    :param packages: Maven coordinates besides the catalog's, for a session that brings its own jars.
    :raises SpecError: if a secret reference cannot be resolved.
    """
    from pyspark.sql import SparkSession

    from lakecdc.iceberg.jvm import know_pyspark_names

    builder = SparkSession.builder.appName(name)
    by_hand = "PYSPARK_GATEWAY_PORT" not in os.environ
    conf = _settings_so_far(by_hand)
    master = os.environ.get("SPARK_MASTER", "local[*]") if by_hand else str(conf.get("spark.master", ""))
    unless_given = {name: value for name, value in _UNLESS_GIVEN.items() if not conf.contains(name)}
    settings = {**_SETTINGS, **unless_given, **redaction(conf), **delete_cache(conf), **python_tasks(conf, master)}
    if by_hand:
        needed = [*runtime.packages(resolve(catalog.properties, "catalog.properties")), *packages]
        settings |= _BY_HAND | {"spark.jars.packages": ",".join(dict.fromkeys(needed))}
        builder = builder.master(master)
        # Python tasks need the packages of this interpreter, and Spark's default is whatever python3 is on the path
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("JDK_JAVA_OPTIONS", runtime.JAVA_OPTIONS)
    for key, value in settings.items():
        builder = builder.config(key, value)
    # the first ``lit`` would import it, and pandas with it
    with without_pandas():
        import pyspark.testing.utils  # noqa: F401
    spark = builder.getOrCreate()
    know_pyspark_names(spark)
    spark.sparkContext.environment[TASK_MEMORY] = str(task_memory(spark.sparkContext.getConf()))
    if not conf.contains(_LISTING):
        # a task for each of many files costs more than looking at the file
        spark.conf.set(_LISTING, str(4 * spark.sparkContext.defaultParallelism))
    use_catalog(spark, catalog)
    return spark


def _settings_so_far(by_hand: bool) -> SparkConf:
    from pyspark import SparkConf, SparkContext

    if not by_hand:
        # what spark-submit was called with is in its JVM, to which PySpark connects at the first question
        SparkContext.getSystemProperty("spark.master")
    return SparkConf()


def redaction(conf: SparkConf) -> dict[str, str]:
    """What Spark hides in its event log, on its environment page and in plans.

    :param conf: what spark-submit was called with; what its own pattern hides is hidden too.
    """
    theirs = conf.get(_REDACTION)
    return {_REDACTION: f"(?:{REDACTION_PATTERN})|(?:{theirs})" if theirs else REDACTION_PATTERN}


def python_tasks(conf: SparkConf, master: str) -> dict[str, str]:
    """Where tasks on this machine find lakecdc, and the daemon that starts them; on others only Spark can tell.

    :param conf: what spark-submit was called with; its own settings win.
    """
    own = {
        # a script of a checkout, or the archive that was submitted, finds lakecdc beside itself; its tasks do not
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "spark.python.daemon.module": "lakecdc.runtime.daemon",
    }
    return {} if not master.startswith("local") or any(map(conf.contains, own)) else own


def delete_cache(conf: SparkConf) -> dict[str, str]:
    """How much of an executor's memory may hold delete files that its tasks share.

    Iceberg's own limits, 64 and 128 MB however large the executor, are too low for a large one, whose tasks read every
    further delete file anew, and too high for a small one: Iceberg counts what a key's values take, eight bytes for a
    long, but keeps objects of about ninety. So these 64th and 32nd of the heap become a third of it at worst.

    :param conf: what spark-submit was called with; its own settings of the cache win.
    """
    heap = _heap(conf)
    limits = {"max-entry-size": max(1, heap // 64), "max-total-size": max(1, heap // 32)}
    names = {f"spark.sql.iceberg.executor-cache.{name}": size * 1024**2 for name, size in limits.items()}
    return {name: str(size) for name, size in names.items() if not conf.contains(name)}


def task_memory(conf: SparkConf) -> int:
    """How much memory is a Python task's, beside the heap, in MiB: what its executor has, shared by its cores.

    :param conf: of the application.
    """
    master, machine = conf.get("spark.master", "local"), os.cpu_count() or 1
    local = _LOCAL_CORES.fullmatch(master)
    if local:
        running = machine if local[1] == "*" else int(local[1] or 1)
    else:
        # a standalone executor takes all cores of a machine, which is thought to be one like this
        unless_given = machine if master.startswith("spark://") else 1
        running = int(conf.get("spark.executor.cores", str(unless_given))) // int(conf.get("spark.task.cpus", "1"))
    python = conf.get("spark.executor.pyspark.memory")
    return (_mebibytes(python) if python else _heap(conf)) // max(1, running)


def _heap(conf: SparkConf) -> int:
    """An executor's, in MiB."""
    local = conf.get("spark.master", "local").startswith("local")
    return _mebibytes(conf.get("spark.driver.memory" if local else "spark.executor.memory", "1g"))


def _mebibytes(memory: str) -> int:
    """Spark's notation of memory; a bare number is MiB."""
    number, unit = memory.rstrip("bB").lower(), 1.0
    if number[-1:] in _MEBIBYTES:
        number, unit = number[:-1], _MEBIBYTES[number[-1]]
    return int(float(number) * unit)


def use_catalog(spark: SparkSession, catalog: Catalog) -> None:
    """Give a running session the settings of a catalog.

    They are session settings, not part of the application's configuration, so that no listing of it shows them.
    """
    from lakecdc.iceberg.lost_answers import look_after_errors

    properties = resolve(catalog.properties, "catalog.properties")
    settings = runtime.spark_properties(catalog.name, properties)
    prefix = f"spark.sql.catalog.{catalog.name}"
    # this session reads what it has just written; the cache would hide other writers for 30 s
    settings.setdefault(f"{prefix}.cache-enabled", "false")
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        spark.sql(f"SHOW NAMESPACES IN {catalog.name}").collect()
    except Exception as error:
        from lakecdc.iceberg.explain import explain

        told = explain(error)
        # a retry helps only where it was out of reach for a moment
        raise (InputError if told and told.refused else SourceUnavailableError)(
            f"The catalog {catalog.name!r} cannot be opened: {told.text if told else error}.",
            hint="Check its uri, warehouse and credentials.",
        ) from error
    look_after_errors(spark, catalog.name)
