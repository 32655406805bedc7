"""What Airflow is told about this provider.

No import stands here: Airflow's every component calls this function when it starts.
"""

from __future__ import annotations

from typing import Any

_INTEGRATION = "Apache Iceberg change data"
_PACKAGE = "airflow_provider_lakecdc"
_OPERATORS = (
    "base",
    "ingest",
    "replay_quarantine",
    "rewrite_delete_files",
    "sort_data_files",
    "compact_data_files",
    "rebucket",
    "rewrite_manifests",
    "compute_statistics",
    "tag_snapshots",
    "expire_snapshots",
    "expire_partitions",
    "remove_orphan_files",
    "clean_side_tables",
    "rollback_tables",
    "reconcile",
    "export_changes",
    "check_tables",
    "restore_moment",
    "scd2",
    "erase_rows",
    "govern",
    "table_status",
    "consumer",
    "announce",
    "remove_documents",
    "assess_tables",
    "plan",
    "approve",
    "report",
)
#: each with a trigger of the same name
_SENSORS = ("polling", "watermark", "delete_debt", "snapshot", "table_health", "source_lag")


def get_provider_info() -> dict[str, Any]:
    """Describe the provider, valid against Airflow's ``provider_info.schema.json``.

    There is no ``connection-types`` entry on purpose: catalogs are connections of type ``iceberg``, which
    apache-airflow-providers-apache-iceberg defines, and a second definition would shadow it.
    """
    return {
        "package-name": "airflow-provider-lakecdc",
        "name": "lakecdc",
        "description": "Feeds Apache Iceberg tables with change data and keeps them fast and clean.",
        "integrations": [
            {
                "integration-name": _INTEGRATION,
                "external-doc-url": "https://iceberg.apache.org/",
                "tags": ["software"],
            }
        ],
        "operators": [_modules(*(f"operators.{name}" for name in _OPERATORS))],
        "sensors": [_modules(*(f"sensors.{name}" for name in _SENSORS))],
        "triggers": [_modules(*(f"triggers.{name}" for name in (*_SENSORS, "row_change")))],
        "hooks": [_modules("hooks.catalog", "hooks.source")],
        "extra-links": [f"{_PACKAGE}.submit.links.{name}" for name in ("JobReportLink", "SparkUiLink", "TableLink")],
        "cli": [f"{_PACKAGE}.cli.definition.get_lakecdc_commands"],
        "config": {"lakecdc": {"description": "Settings of the lakecdc provider.", "options": _options()}},
    }


def _modules(*names: str) -> dict[str, Any]:
    return {"integration-name": _INTEGRATION, "python-modules": [f"{_PACKAGE}.{name}" for name in names]}


def _options() -> dict[str, Any]:
    return {
        "config_file": _option(
            "Path of the JSON file that describes source, targets and schedules to the DAG files of the provider. "
            "The environment variable LAKECDC_CONFIG goes before it.",
            example="/opt/airflow/lakecdc.json",
            default=None,
        ),
        "documents_uri": _option(
            "Folder, as a URI, for job specs and reports. Workers, and in cluster mode the Spark driver, "
            "must reach it; a connection id may stand before an @, as in s3://aws_default@bucket/lakecdc.",
            example="s3://bucket/lakecdc",
            default="file://{AIRFLOW_HOME}/lakecdc/documents",
        ),
        "cache_folder": _option(
            "Folder of the worker in which the zip of the job library is kept.",
            example="/var/cache/lakecdc",
            default="{AIRFLOW_HOME}/lakecdc/packages",
        ),
        "spark_conn_id": _option("Connection of type spark that jobs are submitted to.", default="spark_default"),
        "catalog_conn_id": _option("Connection of type iceberg whose catalog jobs work on.", default="iceberg_default"),
        "page_config_files": _option(
            "Paths of further configuration files, with commas between, whose lakes the page Lakehouse shows beside "
            "that of config_file. The API server reads them.",
            example="/opt/airflow/crm.json,/opt/airflow/warehouse.json",
            default="",
        ),
        "history_server": _option(
            "Address of Spark's history server. The link Spark UI of a task leads there once its job has ended, if the "
            "application has kept its events (spark.eventLog.enabled).",
            example="https://spark-history.example.com",
            default="",
        ),
        "look_first": _option(
            "Whether workers look at the metadata of tables before they start Spark for them, and start none where "
            "nothing is to be done. Switch it off where workers cannot reach the storage of the tables.",
            kind="boolean",
            default="True",
        ),
        "audit": _option(
            "Whether operators write down what each Spark application has done, in the table lakecdc.audit of the "
            "catalog, which is made when it is first needed.",
            kind="boolean",
            default="True",
        ),
    }


def _option(
    description: str, *, default: str | None, example: str | None = None, kind: str = "string"
) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": kind,
        "example": example,
        "default": default,
    }
