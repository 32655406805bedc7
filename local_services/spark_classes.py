"""An archive of Spark's classes, which makes every further start of Spark on this machine some seconds shorter.

A quarter of what a short Spark application costs is loading Spark's classes. One of them can leave an archive that the
others map into memory (JEP 350, dynamic class-data sharing). It belongs to one Java and one set of jars; with any other
it is passed over.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
ARCHIVE = REPOSITORY / "build" / "spark-classes.jsa"
# the second compiler costs a short application more than it brings back
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_CHANGES = [("c", 1), ("c", 2), ("u", 1), ("d", 2)]


def options(archive: Path = ARCHIVE) -> str:
    """What ``SPARK_SUBMIT_OPTS`` says to take the archive; nothing if there is none."""
    return f"-XX:SharedArchiveFile={archive} -Xlog:cds=off -Xlog:cds+dynamic=off" if archive.exists() else ""


def record(archive: Path) -> None:
    """Run a small ingest job, which leaves the archive when it ends.

    :raises subprocess.CalledProcessError: if the job fails.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    java = f"-XX:ArchiveClassesAtExit={unfinished} -Xlog:cds=off -Xlog:cds+dynamic=off"
    environment = {**os.environ, "JDK_JAVA_OPTIONS": _JAVA, "SPARK_SUBMIT_OPTS": java, "SPARK_MASTER": "local[1]"}
    with tempfile.TemporaryDirectory() as folder:
        script = REPOSITORY / "spark_jobs" / "ingest.py"
        command = [sys.executable, str(script), "--spec", str(_spec(Path(folder))), "--report", f"{folder}/report.json"]
        # the JVM outlives the script and holds its output, so reading that to its end waits for the archive
        subprocess.run(command, env=environment, check=True, capture_output=True)
    unfinished.replace(archive)
    print(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB")


def _spec(folder: Path) -> Path:
    events = [
        {
            "op": op,
            "ts_ms": place,
            "before": {"id": key, "name": "before"} if op != "c" else None,
            "after": {"id": key, "name": f"name {place}"} if op != "d" else None,
            "source": {"db": "db", "schema": "shop", "table": "t", "lsn": place, "ts_ms": place},
        }
        for place, (op, key) in enumerate(_CHANGES, 1)
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    properties = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    spec = {
        "version": 1,
        "job": "ingest",
        "catalog": {"name": "lake", "properties": properties},
        "source": {"type": "files", "path": f"{folder}/*.jsonl", "format": "debezium-json"},
        "target": {"table": "shop.t", "source_table": "shop.t", "key": ["id"]},
    }
    file = folder / "spec.json"
    file.write_text(json.dumps(spec))
    return file


if __name__ == "__main__":
    record(Path(sys.argv[1]) if sys.argv[1:] else ARCHIVE)
