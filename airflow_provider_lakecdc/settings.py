"""The provider's settings, section ``[lakecdc]`` of Airflow's configuration."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import conf

#: environment variable with the path of the configuration for the provider's DAG files
CONFIG_FILE_VARIABLE = "LAKECDC_CONFIG"


def documents_uri() -> str:
    """Return the URI of the folder of job specs and reports, without a trailing slash."""
    return _get("documents_uri", f"file://{_home()}/lakecdc/documents").rstrip("/")


def cache_folder() -> Path:
    """Return this machine's folder for the zip of the job library."""
    return Path(_get("cache_folder", f"{_home()}/lakecdc/packages")).expanduser()


def spark_conn_id() -> str:
    """Return the default connection to submit jobs to."""
    return _get("spark_conn_id", "spark_default")


def catalog_conn_id() -> str:
    """Return the default connection of the catalog."""
    return _get("catalog_conn_id", "iceberg_default")


def config_file() -> str | None:
    """Return the path of the configuration for the provider's DAG files, or None if not set."""
    return os.environ.get(CONFIG_FILE_VARIABLE) or _get("config_file", "") or None


def page_config_files() -> list[str]:
    """Return the paths of configurations whose lakes the page shows besides :func:`config_file`."""
    return [each.strip() for each in _get("page_config_files", "").split(",") if each.strip()]


def history_server() -> str | None:
    """Return the address of Spark's history server without a trailing slash, or None if not set."""
    return _get("history_server", "").rstrip("/") or None


def look_first() -> bool:
    """Return whether workers check tables before starting Spark, unless an operator decides."""
    return _switch("look_first")


def audit() -> bool:
    """Return whether operators record each Spark application in the lake."""
    return _switch("audit")


def _get(option: str, fallback: str) -> str:
    # the fallback serves a checkout that is on the path but not installed
    return str(conf.get("lakecdc", option, fallback=fallback) or fallback)


def _switch(option: str) -> bool:
    return bool(conf.getboolean("lakecdc", option, fallback=True))


def _home() -> str:
    return os.path.expanduser(os.environ.get("AIRFLOW_HOME", "~/airflow"))
