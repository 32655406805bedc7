"""Faster start of the run's two dozen short Spark applications.

On two cores, half of such an application's time is loading and compiling Spark's classes. So only the JVM's first
compiler is used (the second costs short applications more than it gains), and the first application writes an archive
of its classes that the others map into memory (JEP 350, dynamic class-data sharing).
"""

from __future__ import annotations

import os

from demo.settings import Settings
from local_services.spark_classes import FIRST_COMPILER


class FastStart:
    """JVM options in a file that every application of the run reads."""

    def __init__(self, settings: Settings) -> None:
        self._file = settings.airflow_home / "jvm.options"
        self._archive = settings.airflow_home / "spark-classes.jsa"

    @property
    def option(self) -> str:
        """Return the option that names the file, for ``spark.driver.extraJavaOptions``."""
        return f'"-XX:VMOptionsFile={self._file}"'

    def record(self) -> None:
        """Let the next application write the archive when it ends, unless the caller has one."""
        has_archive = "SharedArchiveFile" in os.environ.get("SPARK_SUBMIT_OPTS", "")
        self._write(*([] if has_archive else [f"-XX:ArchiveClassesAtExit={self._archive}"]))

    def use(self) -> None:
        """Let the following applications use the archive, if it exists."""
        self._write(*([f"-XX:SharedArchiveFile={self._archive}"] if self._archive.exists() else []))

    def forget(self) -> None:
        """Remove the archive, which is as large as all the rest."""
        self._write()
        self._archive.unlink(missing_ok=True)

    def _write(self, *options: str) -> None:
        self._file.write_text("".join(f'"{option}"\n' for option in (FIRST_COMPILER, *options)))
