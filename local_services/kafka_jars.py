"""The jars of Kafka, Kafka Connect and Debezium, fetched with Maven, and those of Spark's Kafka source."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from local_services.maven import copy_dependencies
from local_services.paths import TOOLS
from local_services.process import ServiceError
from local_services.setup_program import setup_program

POM = Path(__file__).resolve().parent / "kafka_pom" / "pom.xml"
KAFKA = TOOLS / "kafka"
LIBRARY = KAFKA / "lib"


def is_installed() -> bool:
    """Return whether the jars match the current pom."""
    stamp = KAFKA / ".stamp"
    return stamp.exists() and stamp.read_text() == recipe()


def recipe() -> str:
    """Return a hash of the jars' inputs."""
    return hashlib.sha256(POM.read_bytes()).hexdigest()


def install(run: Callable[[Sequence[str]], None]) -> None:
    """Fetch the jars.

    :param run: runs a program, raising an error if it fails
    """
    shutil.rmtree(KAFKA, ignore_errors=True)
    run(copy_dependencies(POM, LIBRARY))
    (KAFKA / ".stamp").write_text(recipe())


def class_path() -> str:
    """Return the class path of all servers from these jars.

    :raises ServiceError: if they are not installed
    """
    if not is_installed():
        raise ServiceError("Kafka's jars are missing. Run python -m local_services.install")
    return f"{LIBRARY}/*"


def spark_arguments() -> str:
    """Return spark-submit's arguments for a session with Spark's Kafka source."""
    return f"--conf spark.jars.excludes={','.join(setup_program().UNWANTED_JARS)}"
