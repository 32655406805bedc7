"""Create the SparkSession with its catalog; no other module does."""

from __future__ import annotations

import atexit
import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from lakecdc.contract import runtime
from lakecdc.contract.errors import InputError, SourceUnavailableError
from lakecdc.contract.secrets import REDACTION_PATTERN, resolve
from lakecdc.contract.spec import Catalog
from lakecdc.object_store.open_catalog import open_catalog, serve
from lakecdc.runtime.worker import prepare_workers, without_pandas

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from lakecdc.object_store.catalog import ObjectCatalog
    from lakecdc.object_store.endpoint import Endpoint

log = logging.getLogger(__name__)

#: returns a setting of an application, or the given default
Setting = Callable[[str, str], str]

_SETTINGS = {
    "spark.sql.extensions": runtime.EXTENSIONS,
    "spark.sql.session.timeZone": "UTC",
    # a cast that does not fit must stop the job, never become null
    "spark.sql.ansi.enabled": "true",
    # otherwise Spark's copy of a table is 30 s old, and jobs read what they have just committed
    "spark.sql.iceberg.locality.enabled": "false",
    # pyspark records the line of every column expression, which takes two to four milliseconds each
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_UNLESS_GIVEN = {
    # each batch and table repeats the same queries, and one batch needs more than Spark's default of a hundred classes
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
    """Create the session of a job, or reuse the running one.

    Under spark-submit the jars are on the class path and the operator's settings win; otherwise the session loads the
    jars itself and runs on the cores of this machine.

    :param catalog: secret references are resolved into the session only.
    :param packages: Maven coordinates besides the catalog's, for a session that loads the jars itself.
    :raises SpecError: a secret reference cannot be resolved.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from lakecdc.iceberg.jvm import know_pyspark_names

    builder = SparkSession.builder.appName(name)
    by_hand = "PYSPARK_GATEWAY_PORT" not in os.environ
    conf = _settings_so_far(by_hand)
    master = os.environ.get("SPARK_MASTER", "local[*]") if by_hand else str(conf.get("spark.master", ""))
    unless_given = {name: value for name, value in _UNLESS_GIVEN.items() if not conf.contains(name)}
    settings = {**_SETTINGS, **unless_given, **redaction(conf), **delete_cache(conf), **python_tasks(conf, master)}
    # a running session keeps its settings
    if by_hand and SparkContext._active_spark_context is None:
        needed = [*runtime.packages(resolve(catalog.properties, "catalog.properties")), *packages]
        settings |= _BY_HAND | {"spark.jars.packages": ",".join(dict.fromkeys(needed))}
        builder = builder.master(master)
        # Python tasks need this interpreter's packages, but Spark's default is any python3 on the path
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("JDK_JAVA_OPTIONS", runtime.JAVA_OPTIONS)
    for key, value in settings.items():
        builder = builder.config(key, value)
    _keep_jars_off_python_path()
    # otherwise the first ``lit`` imports it, and pandas with it
    with without_pandas():
        import pyspark.testing.utils  # noqa: F401
    spark = builder.getOrCreate()
    know_pyspark_names(spark)

    def setting(name: str, unless_given: str) -> str:
        return str(spark.conf.get(name, unless_given))

    prepare_workers(spark.sparkContext.environment, task_memory(setting))
    if not conf.contains(_LISTING):
        # a task per file costs more than reading the file's status
        spark.conf.set(_LISTING, str(4 * spark.sparkContext.defaultParallelism))
    use_catalog(spark, catalog)
    return spark


def _settings_so_far(by_hand: bool) -> SparkConf:
    from pyspark import SparkConf, SparkContext

    if not by_hand:
        # spark-submit's settings are in its JVM, to which PySpark connects at the first access
        SparkContext.getSystemProperty("spark.master")
    return SparkConf()


def _keep_jars_off_python_path() -> None:
    """Keep the jars of ``spark.jars.packages`` off the module path of Python tasks.

    PySpark puts them there because a jar may contain Python. But each task invalidates Python's caches, and up to
    Python 3.12 that reads a jar's whole directory: a tenth of a second for Iceberg's 25,000 classes.
    """
    from pyspark import SparkContext

    SparkContext.PACKAGE_EXTENSIONS = tuple(kind for kind in SparkContext.PACKAGE_EXTENSIONS if kind != ".jar")


def redaction(conf: SparkConf) -> dict[str, str]:
    """Return the patterns that Spark hides in event log, environment page and plans, added to spark-submit's."""
    theirs = conf.get(_REDACTION)
    return {_REDACTION: f"(?:{REDACTION_PATTERN})|(?:{theirs})" if theirs else REDACTION_PATTERN}


def python_tasks(conf: SparkConf, master: str) -> dict[str, str]:
    """Return the settings by which local tasks find lakecdc and their daemon; empty on other masters, or if set."""
    own = {
        # a script of a checkout or a submitted archive finds lakecdc in its folder, but its tasks do not
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "spark.python.daemon.module": "lakecdc.runtime.daemon",
    }
    return {} if not master.startswith("local") or any(map(conf.contains, own)) else own


def delete_cache(conf: SparkConf) -> dict[str, str]:
    """Return limits for the cache of delete files that an executor's tasks share, unless they are set.

    Iceberg's own limits, 64 and 128 MB for any executor, are too low for a large one, whose tasks then reread delete
    files, and too high for a small one: Iceberg counts a key's values, eight bytes for a long, but keeps objects of
    about ninety bytes. These limits, a 64th and a 32nd of the heap, use at worst a third of it.
    """
    heap = _heap(conf.get)
    limits = {"max-entry-size": max(1, heap // 64), "max-total-size": max(1, heap // 32)}
    names = {f"spark.sql.iceberg.executor-cache.{name}": size * 1024**2 for name, size in limits.items()}
    return {name: str(size) for name, size in names.items() if not conf.contains(name)}


def task_memory(setting: Setting) -> int:
    """Return the memory of a Python task beside the heap, in MiB: the executor's, divided by its cores."""
    python = setting("spark.executor.pyspark.memory", "")
    return _mebibytes(python) // _running(setting) if python else task_heap(setting)


def task_heap(setting: Setting) -> int:
    """Return a task's share of its executor's heap, in MiB."""
    return _heap(setting) // _running(setting)


def _running(setting: Setting) -> int:
    """Return the number of concurrent tasks of an executor."""
    master, machine = setting("spark.master", "local"), os.cpu_count() or 1
    local = _LOCAL_CORES.fullmatch(master)
    if local:
        running = machine if local[1] == "*" else int(local[1] or 1)
    else:
        # a standalone executor uses all cores of a machine, assumed to be like this one
        unless_given = machine if master.startswith("spark://") else 1
        running = int(setting("spark.executor.cores", str(unless_given))) // int(setting("spark.task.cpus", "1"))
    return max(1, running)


def _heap(setting: Setting) -> int:
    """Return an executor's heap in MiB."""
    local = setting("spark.master", "local").startswith("local")
    return _mebibytes(setting("spark.driver.memory" if local else "spark.executor.memory", "1g"))


def _mebibytes(memory: str) -> int:
    """Parse Spark's memory notation; a bare number is MiB."""
    number, unit = memory.rstrip("bB").lower(), 1.0
    if number[-1:] in _MEBIBYTES:
        number, unit = number[:-1], _MEBIBYTES[number[-1]]
    return int(float(number) * unit)


def use_catalog(spark: SparkSession, catalog: Catalog) -> None:
    """Apply a catalog's settings to a running session.

    They are session settings, which no listing of the application's configuration shows.
    """
    from lakecdc.iceberg.lost_answers import verify_commits

    properties = resolve(catalog.properties, "catalog.properties")
    if runtime.catalog_type(properties) == runtime.OBJECT_STORE:
        properties = {**properties, **_endpoint_address(spark, catalog.name, properties)}
    else:
        serve(catalog.name, None)
    settings = runtime.spark_properties(catalog.name, properties)
    prefix = f"spark.sql.catalog.{catalog.name}"
    # the cache would hide other writers' commits for 30 s
    settings.setdefault(f"{prefix}.cache-enabled", "false")
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        spark.sql(f"SHOW NAMESPACES IN {catalog.name}").collect()
    except Exception as error:
        from lakecdc.iceberg.explain import explain

        cause = explain(error)
        # a retry helps only if the catalog was temporarily unreachable
        raise (InputError if cause and cause.refused else SourceUnavailableError)(
            f"Cannot open the catalog {catalog.name!r}: {cause.text if cause else error}.",
            hint="Check its uri, warehouse and credentials.",
        ) from error
    verify_commits(spark, catalog.name)


def _endpoint_address(spark: SparkSession, name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's settings for the endpoint of an object-store catalog: in the driver, on loopback only.

    The endpoint starts at the first use, once per application and catalog, and stops when the process exits. Executors
    read and write files without the catalog.
    """
    catalog, endpoint = _started(spark.sparkContext, tuple(sorted(properties.items())))
    serve(name, catalog)
    # otherwise Spark itself deletes the files of a purged table, and frees version numbers
    return {"uri": endpoint.uri, "token": endpoint.token, "rest-catalog-purge": "true"}


@cache
def _started(context: SparkContext, properties: tuple[tuple[str, str], ...]) -> tuple[ObjectCatalog, Endpoint]:
    from pyspark.sql import SparkSession

    from lakecdc.iceberg.metadata_updates import JvmApplier
    from lakecdc.object_store.endpoint import Endpoint

    catalog = open_catalog(dict(properties), JvmApplier(SparkSession(context)))
    endpoint = Endpoint(catalog, writable=True).start()
    atexit.register(endpoint.stop)
    return catalog, endpoint
