"""Measurement of read times and file counts, in a small Spark job run by :func:`measure`."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from demo.dags import DemoError
from demo.jvm import FastStart
from demo.settings import CATALOG, REPOSITORY, Settings
from demo.shop import TABLES, Table
from lakecdc.contract import runtime

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: runs per query after a warm-up; the median is reported
REPEATS = 3
_PROPERTIES = "LAKECDC_DEMO_CATALOG"


def measure(settings: Settings, name: str) -> dict[str, Any]:
    """Measure all tables in a separate Spark application.

    :param name: name of the log.
    :return: by table ``data_files``, ``equality_deletes``, ``position_deletes`` and ``deletion_vectors`` (files),
        ``scan_seconds`` and ``point_seconds``.
    :raises DemoError: the application failed.
    """
    log, output = settings.logs / f"{name}.log", settings.logs / f"{name}.json"
    folder = Path(sys.executable).parent
    command = [str(folder / "spark-submit"), "--master", "local[2]", "--driver-memory", "2g"]
    command += ["--driver-java-options", FastStart(settings).option]
    command += ["--packages", ",".join(runtime.packages(settings.catalog_properties))]
    for setting in ("spark.ui.enabled=false", "spark.driver.bindAddress=127.0.0.1", "spark.driver.host=127.0.0.1"):
        command += ["--conf", setting]
    command += [__file__, "--output", str(output)]
    # with a storage's account, which no command line may show
    environment = {**_environment(), _PROPERTIES: json.dumps(settings.catalog_properties)}
    with log.open("wb") as file:
        done = subprocess.run(command, env=environment, stdout=file, stderr=subprocess.STDOUT)
    if done.returncode:
        raise DemoError("Cannot measure the tables.", log)
    figures: dict[str, Any] = json.loads(output.read_text())
    return figures


def _environment() -> dict[str, str]:
    paths = [str(REPOSITORY), str(REPOSITORY / "spark_jobs")]
    # works without an activated virtual environment; its Python has the packages
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [*paths, os.environ.get("PYTHONPATH")])),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
        "PYSPARK_PYTHON": sys.executable,
    }


def main() -> None:
    """Measure and write the figures."""
    from lakecdc.contract.spec import Catalog
    from lakecdc.runtime.session import open_session

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, type=Path, help="file for the figures")
    arguments = parser.parse_args()
    spark = open_session(Catalog(CATALOG, json.loads(os.environ[_PROPERTIES])), "lakecdc demo: measure")
    try:
        figures = {table.full_name: _figures(spark, table) for table in TABLES}
    finally:
        spark.stop()
    arguments.output.write_text(json.dumps(figures))


def _figures(spark: SparkSession, table: Table) -> dict[str, Any]:
    name = f"{CATALOG}.{table.full_name}"
    keys = [tuple(row) for row in spark.sql(f"SELECT {', '.join(table.key)} FROM {name} LIMIT {REPEATS}").collect()]
    points = [" AND ".join(f"{c} = {v}" for c, v in zip(table.key, key, strict=True)) for key in keys]
    return {
        **_files(spark, name),
        # reads every value of every column, but returns one number
        "scan_seconds": _median(spark, [f"SELECT bit_xor(xxhash64(*)) FROM {name}"] * REPEATS),
        "point_seconds": _median(spark, [f"SELECT * FROM {name} WHERE {point}" for point in points]),
    }


def _files(spark: SparkSession, name: str) -> dict[str, int]:
    kinds = spark.sql(
        "SELECT count_if(content = 0) data_files, count_if(content = 2) equality_deletes, "
        "count_if(content = 1 AND file_format <> 'PUFFIN') position_deletes, "
        f"count_if(content = 1 AND file_format = 'PUFFIN') deletion_vectors FROM {name}.files"
    ).collect()[0]
    return {kind: int(number) for kind, number in kinds.asDict().items()}


def _median(spark: SparkSession, queries: list[str]) -> float:
    spark.sql(queries[0]).collect()
    return round(statistics.median(_seconds(spark, query) for query in queries), 3)


def _seconds(spark: SparkSession, query: str) -> float:
    began = time.perf_counter()
    spark.sql(query).collect()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
