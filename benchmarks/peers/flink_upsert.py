"""Upsert in Flink's environment: ``flink_upsert.py DATABASE WAREHOUSE TABLE FOLDER …``; see ``flink``.

The last printed line is a JSON list of seconds and core-seconds, one pair per folder.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

_COLUMNS = (
    "id BIGINT NOT NULL, customer STRING, email STRING, status STRING, amount DECIMAL(12, 2), version BIGINT, "
    "updated_at TIMESTAMP(6), note STRING"
)
_SETTINGS = {
    "parallelism.default": "2",
    "execution.checkpointing.interval": "10s",
    "rest.port": "0",
    "table.local-time-zone": "UTC",
    # Flink's repair of disordered changelogs; these are in order
    "table.exec.sink.upsert-materialize": "NONE",
    "restart-strategy.type": "disable",
}
_PROPERTIES = {
    "format-version": "2",
    "write.upsert.enabled": "true",
    "write.distribution-mode": "hash",
    "write.parquet.compression-codec": "zstd",
}


def main(database: str, warehouse: str, table: str, folders: list[str]) -> None:
    """Upsert each folder and print the seconds."""
    flink = import_module("pyflink.table")
    environment = flink.TableEnvironment.create(flink.EnvironmentSettings.new_instance().in_streaming_mode().build())
    for key, value in _SETTINGS.items():
        environment.get_config().set(key, value)
    properties = {
        "uri": f"jdbc:sqlite:{database}?busy_timeout=30000",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
    }
    _create_catalog(environment, properties)
    namespace, _, name = table.partition(".")
    environment.execute_sql(f"CREATE DATABASE IF NOT EXISTS lake.{namespace}")
    environment.execute_sql(
        f"CREATE TABLE lake.{table} ({_COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ({_options(_PROPERTIES)})"
    )
    _partition(properties, namespace, name)
    seconds = [_upsert(environment, table, number, Path(folder)) for number, folder in enumerate(folders)]
    print(json.dumps(seconds), flush=True)


def _create_catalog(environment: Any, properties: dict[str, str]) -> None:
    options = {
        "type": "iceberg",
        "cache-enabled": "false",
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        **properties,
    }
    environment.execute_sql(f"CREATE CATALOG lake WITH ({_options(options)})")


def _partition(properties: dict[str, str], namespace: str, name: str) -> None:
    """Set the partitioning by Iceberg's Java API, as Flink's SQL has no transforms."""
    jvm = import_module("pyflink.java_gateway").get_gateway().jvm
    settings = jvm.java.util.HashMap()
    for key, value in properties.items():
        settings.put(key, value)
    catalog = jvm.org.apache.iceberg.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    catalog.initialize("lake", settings)
    names = jvm.org.apache.iceberg.catalog.TableIdentifier.parse(f"{namespace}.{name}")
    bucket = jvm.org.apache.iceberg.expressions.Expressions.bucket("id", 4)
    catalog.loadTable(names).updateSpec().addField(bucket).commit()


def _upsert(environment: Any, table: str, number: int, folder: Path) -> tuple[float, float]:
    source = {
        "connector": "filesystem",
        "path": folder.as_uri(),
        "format": "debezium-json",
        "debezium-json.timestamp-format.standard": "ISO-8601",
    }
    environment.execute_sql(
        f"CREATE TEMPORARY TABLE events_{number} ({_COLUMNS}, PRIMARY KEY (id) NOT ENFORCED) WITH ({_options(source)})"
    )
    began, used = time.monotonic(), _processor_seconds()
    environment.execute_sql(f"INSERT INTO lake.{table} SELECT * FROM events_{number}").wait()
    return round(time.monotonic() - began, 2), round(_processor_seconds() - used, 1)


def _processor_seconds() -> float:
    """Return the CPU seconds of the mini cluster's JVM."""
    jvm = import_module("pyflink.java_gateway").get_gateway().jvm
    pid = jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _options(options: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
    # the mini cluster's threads would keep the process alive
    os._exit(0)
