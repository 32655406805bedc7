"""Apache Flink with Iceberg's sink in a separate Python environment, as an independent writer of equality deletes.

Flink's Python package requires other versions of Spark's dependencies, and contains Flink's jars.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from local_services.paths import REPOSITORY, TOOLS
from local_services.process import LOG_TAIL, PATIENCE, ServiceError
from local_services.tools import HERE, Run, Tool, copy_dependencies, digest, make_environment

#: iceberg-flink-runtime-2.1 requires the 2.1 line
VERSION = "2.1.3"
_POM = HERE / "flink_pom" / "pom.xml"


def _flink(run: Run, folder: Path) -> None:
    make_environment(run, folder, [f"apache-flink=={VERSION}"])
    (library,) = folder.glob("lib/python*/site-packages/pyflink/lib")
    run(copy_dependencies(_POM, library))


FLINK = Tool("Flink", TOOLS / "flink", digest(f"{VERSION} {sys.version_info[:2]}", _POM), _flink)
PYTHON = FLINK.folder / "bin" / "python"


def environment(folder: Path) -> dict[str, str]:
    """Return the variables of a program in Flink's environment, with the folder of its logs."""
    names = [name for name in os.environ if not name.startswith(("SPARK", "PYSPARK", "PYTHON"))]
    java = "-Xmx1g -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC"
    return {**{name: os.environ[name] for name in names}, "JDK_JAVA_OPTIONS": java, "FLINK_LOG_DIR": str(folder)}


class FlinkTables:
    """Flink writing the tables of :mod:`local_services.flink_shapes` in the background.

    :param database: the SQLite file of the catalog
    :param warehouse: its warehouse, a URI
    :param folder: events, savepoints, logs and the expected rows of each table
    :param tables: names without namespace, in the order of writing
    """

    def __init__(self, database: Path, warehouse: str, folder: Path, tables: Sequence[str]) -> None:
        self._arguments = ["--database", str(database), "--warehouse", warehouse, "--out", str(folder)]
        self._arguments += ["--tables", *tables]
        self.folder = folder
        self._log = folder / "output.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        FLINK.check()
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(PYTHON), "-m", "local_services.flink_writer", *self._arguments],
                cwd=REPOSITORY,
                env=environment(self.folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        # Flink's JVM is a child of the program, in their common session
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Wait until a table is complete and return its expected rows, values as in the JSON of the events."""
        self.wait_for(f"{table}.json", f"{table}.failed")
        return list(json.loads((self.folder / f"{table}.json").read_text()))

    def wait_for(self, name: str, failure: str) -> None:
        """Wait for a file of the program, or for the one that explains why it will not appear."""
        until, file = time.monotonic() + PATIENCE, self.folder / name
        while not file.exists():
            ended = self._process is None or self._process.poll() is not None
            if (self.folder / failure).exists():
                raise ServiceError(f"Flink: {failure}: {(self.folder / failure).read_text()}")
            if (ended and not file.exists()) or time.monotonic() > until:
                raise ServiceError(f"Flink: no {name}:\n{self._log.read_text(errors='replace')[-LOG_TAIL:]}")
            time.sleep(0.05)

    def begin(self, table: str) -> None:
        """Start an endless table, once the tables before it are complete."""
        (self.folder / f"{table}.go").touch()

    def stop(self, table: str) -> None:
        """End an endless table."""
        (self.folder / f"{table}.stop").touch()
