"""The demo's Airflow: its home, connections and DAG configuration, all set by environment variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from demo.jvm import FastStart
from demo.settings import CATALOG, REPOSITORY, SHOP, Settings
from demo.shop import TABLES

#: Airflow connection of the shop's database
SOURCE_CONNECTION = "shop_db"
DAGS = {name: f"{SHOP}_{name}" for name in ("ingest", "hourly_governance", "nightly_governance", "reconcile")}
#: the folder of every checkout, and the demo's
_FOLDERS = {"dags-folder": REPOSITORY / "dags", "demo": REPOSITORY / "demo" / "dag_files"}
_BUNDLE = "airflow.dag_processing.bundles.local.LocalDagBundle"


def dag_file(dag: str) -> Path:
    """Return the file of a DAG.

    :param dag: one of :data:`DAGS`.
    """
    return next(file for folder in _FOLDERS.values() if (file := folder / f"lakecdc_{dag}.py").exists())


def dag_config(settings: Settings) -> dict[str, Any]:
    """Return the configuration for ``LAKECDC_CONFIG``, see ``airflow_provider_lakecdc.templates.config``."""
    return {
        "dag_id_prefix": SHOP,
        "catalog_conn_id": CATALOG,
        "source_conn_id": SOURCE_CONNECTION,
        "source": {"type": "postgres", "slot": "lakecdc_demo", "full_load_parallelism": 2},
        "targets": [table.target for table in TABLES],
        "spark": {
            "driver_memory": "2g",
            "conf": {
                "spark.sql.shuffle.partitions": "4",
                "spark.ui.enabled": "false",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.extraJavaOptions": FastStart(settings).option,
            },
        },
        "options": {
            # expire all but the last snapshots
            "expire_snapshots": {"max_age": 1.0, "retain_last": 2},
            # low enough that the hourly compaction rewrites some files
            "hourly_governance.compact_data_files": {"delete_ratio": 0.12},
            "nightly_governance.compact_data_files": {"min_input_files": 2, "delete_ratio": 0.01},
        },
        # show failures at once
        "retries": 0,
        "tags": ["demo"],
    }


def connections(settings: Settings, source_port: int) -> dict[str, dict[str, Any]]:
    """Return Airflow's connections by id."""
    return {
        CATALOG: {"conn_type": "iceberg", "extra": {**settings.catalog_properties, "catalog_name": CATALOG}},
        SOURCE_CONNECTION: {
            "conn_type": "postgres",
            "host": "127.0.0.1",
            "port": source_port,
            "login": "postgres",
            "schema": "postgres",
        },
        "spark_default": {"conn_type": "spark", "host": "local[2]"},
    }


def variables(settings: Settings, source_port: int) -> dict[str, str]:
    """Return the environment of Airflow, based on that of this process."""
    home = settings.airflow_home
    by_id = connections(settings, source_port)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "LAKECDC_"))}
    return {
        **inherited,
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(each) for name, each in by_id.items()},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(_FOLDERS["dags-folder"]),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(
            [{"name": name, "classpath": _BUNDLE, "kwargs": {"path": str(folder)}} for name, folder in _FOLDERS.items()]
        ),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home / "plugins"),
        # the default of 32 idle workers is too much for two cores
        "AIRFLOW__CORE__PARALLELISM": "2",
        "LAKECDC_CONFIG": str(home / "shop.json"),
        # works without an activated virtual environment
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]),
    }


def prepare(settings: Settings, environment: dict[str, str]) -> None:
    """Write the DAGs' configuration and create Airflow's database.

    :raises subprocess.CalledProcessError: Airflow cannot create the database; see :func:`migrate_log`.
    """
    settings.airflow_home.mkdir(parents=True)
    FastStart(settings).record()
    Path(environment["LAKECDC_CONFIG"]).write_text(json.dumps(dag_config(settings), indent=2) + "\n")
    with migrate_log(settings).open("wb") as log:
        command = [sys.executable, "-m", "airflow", "db", "migrate"]
        subprocess.run(command, env=environment, check=True, stdout=log, stderr=subprocess.STDOUT)


def migrate_log(settings: Settings) -> Path:
    """Return the log file of the database's creation."""
    return settings.logs / "airflow-db-migrate.log"
