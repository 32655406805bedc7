"""The jars of Apicurio Registry and its converter for Kafka Connect, fetched with Maven."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from local_services.maven import copy_dependencies, maven
from local_services.paths import TOOLS
from local_services.process import ServiceError

VERSION = "2.6.13.Final"
POM = Path(__file__).resolve().parent / "avro_pom" / "pom.xml"
FOLDER = TOOLS / "schema-registry"
CONVERTER = FOLDER / "converter"
_SERVER = FOLDER / "server"
_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"


def is_installed() -> bool:
    """Return whether server and converter are up to date."""
    stamp = FOLDER / ".stamp"
    return stamp.exists() and stamp.read_text() == recipe()


def recipe() -> str:
    """Return a hash of their inputs."""
    return hashlib.sha256(POM.read_bytes() + _ARTIFACT.encode()).hexdigest()


def install(run: Callable[[Sequence[str]], None]) -> None:
    """Fetch the server and the converter's jars.

    :param run: runs a program, raising an error if it fails
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    _SERVER.mkdir(parents=True)
    run(copy_dependencies(POM, CONVERTER))
    with tempfile.TemporaryDirectory() as scratch:
        run([*maven(POM), "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={scratch}"])
        (archive,) = Path(scratch).iterdir()
        with tarfile.open(archive) as content:
            content.extractall(_SERVER, filter="data")
    (FOLDER / ".stamp").write_text(recipe())


def server_jar() -> Path:
    """Return the jar that starts the server.

    :raises ServiceError: if it is not installed
    """
    if not is_installed():
        raise ServiceError("The schema registry is missing. Run python -m local_services.install")
    (runner,) = _SERVER.glob("*-runner.jar")
    return runner
