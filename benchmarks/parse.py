"""Measure how long each DAG file of `dags/` takes to parse, against the simplest ones.

    python -m benchmarks.parse [--tables 50] [--repeats 5]

Each file is parsed in a fork of a process that has imported Airflow, like its DAG processor; the median of their CPU
seconds counts. The simplest are Airflow's own example and a DAG with one task of Airflow's Spark provider. The last
line is JSON.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import time
from pathlib import Path

from benchmarks.folders import emptied
from benchmarks.terminal import only_own_lines

_DAGS = Path(__file__).resolve().parents[1] / "dags"
_SPARK_SUBMIT = """
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

with DAG("spark_submit", schedule=None):
    SparkSubmitOperator(task_id="submit", application="job.py")
"""


def prepare(folder: Path, tables: int) -> None:
    """Give this process its own Airflow home and a configuration of that many tables."""
    config = {
        "catalog_conn_id": "lake",
        "source": {"type": "postgres", "slot": "bench"},
        "source_conn_id": "db",
        "targets": [{"table": f"bench.t{number}"} for number in range(tables)],
    }
    (folder / "config.json").write_text(json.dumps(config))
    os.environ |= {
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "LAKECDC_CONFIG": str(folder / "config.json"),
    }


def parsed(file: Path) -> float:
    """Return the CPU seconds this process takes to parse a file."""
    from airflow.dag_processing.dagbag import DagBag

    begun = time.process_time()
    bag = DagBag(str(file))
    elapsed = time.process_time() - begun
    assert bag.dags and not bag.import_errors, bag.import_errors
    return elapsed


def seconds(file: Path, repeats: int) -> float:
    """Return the median over `repeats` forks of this process."""
    timings = []
    for _ in range(repeats):
        with multiprocessing.get_context("fork").Pool(1) as pool:
            timings.append(pool.apply(parsed, (file,)))
    return round(statistics.median(timings), 3)


def measure(folder: Path, repeats: int) -> dict[str, float]:
    """Return the CPU seconds by DAG file, the simplest first."""
    from airflow import example_dags

    (examples,) = example_dags.__path__
    spark_submit = folder / "spark_submit.py"
    spark_submit.write_text(_SPARK_SUBMIT)
    seconds_by_file = {}
    for path in (Path(examples, "example_simplest_dag.py"), spark_submit, *sorted(_DAGS.glob("*.py"))):
        seconds_by_file[path.stem] = seconds(path, repeats)
        print(f"{path.stem:28} {seconds_by_file[path.stem]:.3f} s")
    return seconds_by_file


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=Path("build/bench/parse"))
    arguments = parser.parse_args()
    folder = emptied(arguments.folder)
    with only_own_lines(folder / "output.log"):
        prepare(folder, arguments.tables)
        import airflow.dag_processing.dagbag  # noqa: F401

        measured = measure(folder, arguments.repeats)
        facts = {"tables": arguments.tables, "repeats": arguments.repeats, "cores": os.cpu_count()}
        print(json.dumps({"name": "bench-parse", "cpu_seconds": measured, **facts}))


if __name__ == "__main__":
    main()
