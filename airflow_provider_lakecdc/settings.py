"""The provider's settings, section ``[lakecdc]`` of Airflow's configuration, read in one place."""

from __future__ import annotations

import os
from pathlib import Path

from airflow.sdk import conf

#: environment variable with the path of the configuration of the provider's DAG files
CONFIG_FILE_VARIABLE = "LAKECDC_CONFIG"


def documents_uri() -> str:
    """Folder for job specs and reports, as a URI without a slash at its end."""
    return _get("documents_uri", f"file://{_home()}/lakecdc/documents").rstrip("/")


def cache_folder() -> Path:
    """Folder of this machine in which the zip of the job library is kept."""
    return Path(_get("cache_folder", f"{_home()}/lakecdc/packages")).expanduser()


def spark_conn_id() -> str:
    """Connection that jobs are submitted to unless an operator names another."""
    return _get("spark_conn_id", "spark_default")


def catalog_conn_id() -> str:
    """Connection of the catalog that jobs work on unless an operator names another."""
    return _get("catalog_conn_id", "iceberg_default")


def config_file() -> str | None:
    """Path of the configuration of the provider's DAG files; None if nobody has set one."""
    return os.environ.get(CONFIG_FILE_VARIABLE) or _get("config_file", "") or None


def page_config_files() -> list[str]:
    """Paths of further configurations, whose lakes the page shows beside that of :func:`config_file`."""
    return [each.strip() for each in _get("page_config_files", "").split(",") if each.strip()]


def history_server() -> str | None:
    """Address of Spark's history server without a slash at its end; None if there is none."""
    return _get("history_server", "").rstrip("/") or None


def look_first() -> bool:
    """Whether workers look at tables before they start Spark, unless an operator says."""
    return _switch("look_first", fallback=True)


def audit() -> bool:
    """Whether operators write down in the lake what each Spark application has done."""
    return _switch("audit", fallback=True)


def _get(option: str, fallback: str) -> str:
    # the fallback also serves a checkout that is on the path without being installed
    return str(conf.get("lakecdc", option, fallback=fallback) or fallback)


def _switch(option: str, *, fallback: bool) -> bool:
    return bool(conf.getboolean("lakecdc", option, fallback=fallback))


def _home() -> str:
    return os.path.expanduser(os.environ.get("AIRFLOW_HOME", "~/airflow"))
