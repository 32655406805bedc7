"""Metadata of this provider for Airflow.

It imports nothing of Airflow, as all Airflow components call it when they start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

_INTEGRATION = "Apache Iceberg change data"
_PACKAGE = "airflow_provider_lakecdc"


def get_provider_info() -> dict[str, Any]:
    """Describe the provider, valid against Airflow's ``provider_info.schema.json``.

    There is no ``connection-types`` entry: catalogs are connections of type ``iceberg`` of
    apache-airflow-providers-apache-iceberg, and a second definition would override it.
    """
    return {
        "package-name": "airflow-provider-lakecdc",
        "name": "lakecdc",
        "description": "Feeds Apache Iceberg tables with change data and maintains them.",
        "integrations": [
            {"integration-name": _INTEGRATION, "external-doc-url": "https://iceberg.apache.org/", "tags": ["software"]}
        ],
        "operators": [_modules(*_names("operators"))],
        "sensors": [_modules(*_names("sensors"))],
        "triggers": [_modules(*_names("triggers"))],
        "hooks": [_modules("hooks.catalog", "hooks.source")],
        "extra-links": [f"{_PACKAGE}.submit.job_run.{name}" for name in ("JobReportLink", "SparkUiLink", "TableLink")],
        "cli": [f"{_PACKAGE}.cli.definition.get_lakecdc_commands"],
        "config": {"lakecdc": {"description": "Settings of the lakecdc provider.", "options": _options()}},
    }


def _names(package: str) -> list[str]:
    """Return the names of a package's modules, which are not imported."""
    files = Path(__file__).with_name(package).glob("[!_]*.py")
    return sorted(f"{package}.{file.stem}" for file in files)


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.{name}" for name in names]}


def _options() -> dict[str, Any]:
    return {
        "config_file": _option(
            "Path of the JSON configuration of the provider's DAG files, with source, targets and schedules. "
            "The environment variable LAKECDC_CONFIG overrides it.",
            example="/opt/airflow/lakecdc.json",
            default=None,
        ),
        "documents_uri": _option(
            "URI of the folder for job specs and reports. Workers, and in cluster mode the Spark driver, "
            "must reach it; a connection id may precede an @, as in s3://aws_default@bucket/lakecdc.",
            example="s3://bucket/lakecdc",
            default="file://{AIRFLOW_HOME}/lakecdc/documents",
        ),
        "cache_folder": _option(
            "Folder on workers for the zip of the job library.",
            example="/var/cache/lakecdc",
            default="{AIRFLOW_HOME}/lakecdc/packages",
        ),
        "spark_conn_id": _option(
            "Connection to submit jobs to: of type spark, or of a platform such as EMR.", default="spark_default"
        ),
        "catalog_conn_id": _option("Connection of type iceberg of the jobs' catalog.", default="iceberg_default"),
        "page_config_files": _option(
            "Comma-separated paths of further configuration files, whose lakes the page Lakehouse shows in "
            "addition to that of config_file. The API server reads them.",
            example="/opt/airflow/crm.json,/opt/airflow/warehouse.json",
            default="",
        ),
        "history_server": _option(
            "Address of Spark's history server. A task's link Spark UI leads there after its job has ended, if the "
            "application logged its events (spark.eventLog.enabled).",
            example="https://spark-history.example.com",
            default="",
        ),
        "look_first": _option(
            "Whether workers check the metadata of tables before they start Spark, and skip Spark if no table needs "
            "the job. Disable it if workers cannot reach the tables' storage.",
            kind="boolean",
            default="True",
        ),
        "audit": _option(
            "Whether operators record each Spark application in the table lakecdc.audit of the catalog, which is "
            "created on first use.",
            kind="boolean",
            default="True",
        ),
    }


def _option(
    description: str, *, default: str | None, example: str | None = None, kind: str = "string"
) -> dict[str, Any]:
    return {"description": description, "version_added": "0.1.0", "type": kind, "example": example, "default": default}
