"""A faster start for the two dozen short Spark applications of a run.

On two cores half of such an application's time goes into loading Spark's classes and compiling them. So only the JVM's
first compiler is used (the second costs a short application more than it brings back), and the first application
leaves an archive of its classes that the others map into memory (JEP 350, dynamic class-data sharing).
"""

from __future__ import annotations

import os

from demo.settings import Settings
from local_services.spark_classes import FIRST_COMPILER


class FastStart:
    """Options of the JVM in a file that every application of the run is pointed to.

    :param settings: the demo's settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._file = settings.airflow_home / "jvm.options"
        self._archive = settings.airflow_home / "spark-classes.jsa"

    @property
    def option(self) -> str:
        """The option that names the file, for ``spark.driver.extraJavaOptions``."""
        return f'"-XX:VMOptionsFile={self._file}"'

    def record(self) -> None:
        """Let the next application leave the archive when it ends, unless whoever called brought one."""
        brought = "SharedArchiveFile" in os.environ.get("SPARK_SUBMIT_OPTS", "")
        self._write(*([] if brought else [f"-XX:ArchiveClassesAtExit={self._archive}"]))

    def use(self) -> None:
        """Let the following ones take it, if it has come about."""
        self._write(*([f"-XX:SharedArchiveFile={self._archive}"] if self._archive.exists() else []))

    def forget(self) -> None:
        """Do without it from now on; it is as large as all the rest."""
        self._write()
        self._archive.unlink(missing_ok=True)

    def _write(self, *options: str) -> None:
        self._file.write_text("".join(f'"{option}"\n' for option in (FIRST_COMPILER, *options)))
