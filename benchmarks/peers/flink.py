"""Run Flink's Iceberg sink in upsert mode, the alternative to lakecdc.

Flink's ``debezium-json`` format, a table of the same columns, key and buckets, a checkpoint every ten seconds (one
commit each), two slots, and ``write.upsert.enabled``, as Iceberg's documentation "Flink writes" requires. Flink runs in
a separate environment (``local_services.flink``); its mini cluster is one JVM, whose start is not measured.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from local_services import flink

_ROOT = Path(__file__).resolve().parents[2]
_JAVA = "-Xmx4g -Duser.timezone=UTC"


def ingest(database: Path, warehouse: str, table: str, folders: Sequence[Path]) -> list[list[float]]:
    """Upsert folders of events, one after another, into a new table.

    :param database: SQLite file of the catalog.
    :return: seconds and core-seconds of each, from the job's submission to its end.
    """
    python = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "PYTHON"))}
    command = [str(flink.PYTHON), str(Path(__file__).with_name("flink_upsert.py")), str(database), warehouse, table]
    environment = {**python, "JDK_JAVA_OPTIONS": _JAVA, "FLINK_LOG_DIR": str(database.parent)}
    output = subprocess.run(
        [*command, *map(str, folders)], cwd=_ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    return list(json.loads(output.splitlines()[-1]))
