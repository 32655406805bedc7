"""The one place where a SparkSession and its catalog settings are made."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lakecdc.contract import runtime
from lakecdc.contract.errors import SourceUnavailableError
from lakecdc.contract.secrets import resolve
from lakecdc.contract.spec import Catalog
from lakecdc.unwanted_imports import without_pandas

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_SETTINGS = {
    "spark.sql.extensions": runtime.EXTENSIONS,
    "spark.sql.session.timeZone": "UTC",
    # a cast that does not fit must stop the job, never become null
    "spark.sql.ansi.enabled": "true",
    "spark.redaction.regex": "(?i)secret|password|token|credential|access[.-]?key",
    # Spark's copy of a table is 30 s old otherwise, and jobs read what they have just committed
    "spark.sql.iceberg.locality.enabled": "false",
    # pyspark notes the line of every column expression, which costs two to four milliseconds each time
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_UNLESS_GIVEN = {
    # each batch and table repeats the same queries, and Spark's hundred classes are fewer than those of one batch
    "spark.sql.codegen.cache.maxEntries": "2000",
}
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_MEBIBYTES = {"k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 1024.0**2}
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
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from lakecdc.iceberg.jvm import know_pyspark_names

    builder = SparkSession.builder.appName(name)
    by_hand, conf = "PYSPARK_GATEWAY_PORT" not in os.environ, SparkConf()
    master = os.environ.get("SPARK_MASTER", "local[*]") if by_hand else str(conf.get("spark.master", ""))
    unless_given = {name: value for name, value in _UNLESS_GIVEN.items() if not conf.contains(name)}
    settings = {**_SETTINGS, **unless_given, **delete_cache(conf), **python_tasks(conf, master)}
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
    if not conf.contains(_LISTING):
        # a task for each of many files costs more than looking at the file
        spark.conf.set(_LISTING, str(4 * spark.sparkContext.defaultParallelism))
    use_catalog(spark, catalog)
    return spark


def python_tasks(conf: SparkConf, master: str) -> dict[str, str]:
    """Where tasks on this machine find lakecdc, and the daemon that starts them; on others only Spark can tell.

    :param conf: what spark-submit was called with; its own settings win.
    """
    own = {
        # a script of a checkout, or the archive that was submitted, finds lakecdc beside itself; its tasks do not
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[1]),
        "spark.python.daemon.module": "lakecdc.python_daemon",
    }
    return {} if not master.startswith("local") or any(map(conf.contains, own)) else own


def delete_cache(conf: SparkConf) -> dict[str, str]:
    """How much of an executor's memory may hold delete files that its tasks share.

    Iceberg's own limits, 64 and 128 MB however large the executor, are too low for a large one, whose tasks read every
    further delete file anew, and too high for a small one: Iceberg counts what a key's values take, eight bytes for a
    long, but keeps objects of about ninety. So these 64th and 32nd of the heap become a third of it at worst.

    :param conf: what spark-submit was called with; its own settings of the cache win.
    """
    local = conf.get("spark.master", "local").startswith("local")
    heap = _mebibytes(conf.get("spark.driver.memory" if local else "spark.executor.memory", "1g"))
    limits = {"max-entry-size": max(1, heap // 64), "max-total-size": max(1, heap // 32)}
    names = {f"spark.sql.iceberg.executor-cache.{name}": size * 1024**2 for name, size in limits.items()}
    return {name: str(size) for name, size in names.items() if not conf.contains(name)}


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
        raise SourceUnavailableError(
            f"The catalog {catalog.name!r} cannot be opened: {told.text if told else error}.",
            hint="Check its uri, warehouse and credentials; a retry helps only if it was unreachable for a moment.",
        ) from error
