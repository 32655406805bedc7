"""An archive of Spark's and Iceberg's classes that shortens every later start on this machine by some seconds.

A third of the cost of a short Spark application is loading classes. One application can write an archive that others
map into memory (JEP 350, dynamic class-data sharing). It is for one Java and one class path, and ignored with others.
Iceberg's jar must be on that path; jars that Spark adds later are not in the archive.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from lakecdc.contract.runtime import packages
from local_services.setup_program import setup_program

REPOSITORY = Path(__file__).parents[1]
ARCHIVE = REPOSITORY / "build" / "spark-classes.jsa"
#: the second compiler costs a short application more than it gains
FIRST_COMPILER = "-XX:TieredStopAtLevel=1"
#: for a JVM that ends soon, or gets new code with every statement
SHORT_LIVED_JVM = f"{FIRST_COMPILER} -XX:+UseSerialGC"
# the first compiler alone would reserve too little for generated classes, and metaspace would grow by full collections
LONG_LIVED_JVM = f"{SHORT_LIVED_JVM} -XX:ReservedCodeCacheSize=400m -XX:MetaspaceSize=600m"
#: a heap that begins small grows by full collections, a tenth of a run; the launcher's must be smaller
LARGE_HEAP = "--driver-memory 2g --driver-java-options '-Xms1g -Xmn500m'"
#: compiling each expression for a handful of rows is a sixth of a run
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
#: planning each stage anew makes a job of each stage, and writing plans for a page without readers takes as long
PLANNED_ONCE = {"spark.sql.adaptive.enabled": "false", "spark.sql.ui.explainMode": "simple"}
#: by default Java maps an archive to a random address and adapts all of its pointers, a fifth of a second
_IN_PLACE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
_CHANGES = [("c", 1), ("c", 2), ("u", 1), ("d", 2)]


def environment(archive: Path = ARCHIVE, more: Sequence[str] = ()) -> dict[str, str]:
    """Return the variables that make Spark use the archive; empty if it does not exist.

    :param more: Maven coordinates of jars that must be beside Iceberg's, such as its AWS bundle; fetched before.
    """
    return _variables(f"-XX:SharedArchiveFile={archive}", more) if archive.exists() else {}


def record(archive: Path) -> None:
    """Run a small ingest job, which writes the archive when it ends."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    if not all(jar.exists() for jar in _jars()):
        _ingest({})
    _ingest(_variables(f"-XX:ArchiveClassesAtExit={unfinished}"))
    unfinished.replace(archive)
    print(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB")


def _variables(java: str, more: Sequence[str] = ()) -> dict[str, str]:
    # the archive still matches a longer path that begins like its own
    path = os.pathsep.join(map(str, dict.fromkeys([*_jars(), *map(setup_program().fetched, more)])))
    options = f"{java} {_IN_PLACE} -Xlog:cds=off -Xlog:cds+dynamic=off"
    return {"SPARK_SUBMIT_OPTS": options, "SPARK_DIST_CLASSPATH": path}


def _jars() -> list[Path]:
    """Return the jars of a session on a SQLite catalog, in Spark's download folder."""
    return [setup_program().fetched(c) for c in packages({"type": "sql", "uri": "sqlite://", "warehouse": "file:"})]


def _ingest(variables: Mapping[str, str]) -> None:
    own = {**os.environ, "JDK_JAVA_OPTIONS": SHORT_LIVED_JVM, "SPARK_MASTER": "local[1]", **variables}
    with tempfile.TemporaryDirectory() as folder:
        script = REPOSITORY / "spark_jobs" / "ingest.py"
        command = [sys.executable, str(script), "--spec", str(_spec(Path(folder))), "--report", f"{folder}/report.json"]
        # the JVM outlives the script and holds its output, so reading that to its end waits for the archive
        subprocess.run(command, env=own, check=True, capture_output=True)


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
