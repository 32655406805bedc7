"""The jars of Apicurio Registry and its converter for Kafka Connect, fetched with Maven."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path

from local_services.paths import TOOLS
from local_services.tools import HERE, Run, Tool, copy_dependencies, digest, maven

VERSION = "2.6.13.Final"
_POM = HERE / "avro_pom" / "pom.xml"
_ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"


def _registry(run: Run, folder: Path) -> None:
    run(copy_dependencies(_POM, folder / "converter"))
    with tempfile.TemporaryDirectory() as scratch:
        run([*maven(_POM), "dependency:copy", f"-Dartifact={_ARTIFACT}", f"-DoutputDirectory={scratch}"])
        (archive,) = Path(scratch).iterdir()
        with tarfile.open(archive) as content:
            content.extractall(folder / "server", filter="data")


REGISTRY = Tool("the schema registry", TOOLS / "schema-registry", digest(_POM, _ARTIFACT), _registry)
CONVERTER = REGISTRY.folder / "converter"


def server_jar() -> Path:
    """Return the jar that starts the server, which must be installed."""
    REGISTRY.check()
    (runner,) = (REGISTRY.folder / "server").glob("*-runner.jar")
    return runner
