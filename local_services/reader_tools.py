"""The programs behind engines of tests: Trino, ClickHouse, DuckDB's HTTP extension, dbt and Cosmos."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

from local_services.paths import TOOLS
from local_services.tools import HERE, Run, Tool, copy_dependencies, digest, make_environment

_POM, _SOURCE = HERE / "trino_pom" / "pom.xml", HERE / "TrinoServer.java"
#: a wheel of Java 25 with the Vector API, which Trino requires
_JAVA = "arcadedb-embedded==26.10.2.post1"
#: ClickHouse as a library, without chdb's dependencies
CLICKHOUSE_PACKAGE = "chdb-core==26.9.0"
#: DuckDB's extension for HTTP and S3, of DuckDB's version
_HTTPFS_PACKAGE = "duckdb-extension-httpfs==1.5.5"
#: dbt on DuckDB; dbt-core 1.12 and later fetches a binary during installation
_DBT = ("dbt-core==1.11.16", "dbt-duckdb==1.11.1", "duckdb==1.5.5", "pyiceberg[sql-sqlite,pyarrow]==0.12.0")
#: makes Airflow tasks of dbt's models; added to the project's environment, which has its other dependencies
_COSMOS = (
    *("astronomer-cosmos==1.15.1", "aenum==3.1.17", "deprecation==2.1.0", "distlib==0.4.4", "filelock==4.3.1"),
    *("msgpack==1.2.4", "python-discovery==1.9.6", "virtualenv==21.15.11"),
)
(TRINO_VERSION,) = re.findall("<trino.version>(.*)</trino.version>", _POM.read_text())


def _trino(run: Run, folder: Path) -> None:
    make_environment(run, folder, ["--no-deps", _JAVA])
    library = folder / "jars"
    run(copy_dependencies(_POM, library))
    run(["javac", "--release", "17", "-d", str(folder / "classes"), str(_SOURCE)])
    # plugins have separate class loaders, which may read the same jars
    with zipfile.ZipFile(library / "services.jar", "w") as services:
        services.writestr("META-INF/services/io.trino.spi.Plugin", "io.trino.plugin.iceberg.IcebergPlugin\n")
    (folder / "plugins").mkdir()
    (folder / "plugins" / "iceberg").symlink_to(library)


def _clickhouse(run: Run, folder: Path) -> None:
    make_environment(run, folder, ["--no-deps", CLICKHOUSE_PACKAGE])


def _httpfs(run: Run, folder: Path) -> None:
    make_environment(run, folder, ["--no-deps", _HTTPFS_PACKAGE])


def _dbt(run: Run, folder: Path) -> None:
    make_environment(run, folder, _DBT)


def _cosmos(run: Run, folder: Path) -> None:
    make_environment(run, folder, ["--no-deps", *_COSMOS])


def trino_command(settings: Path, data: Path, options: Sequence[str]) -> Sequence[str]:
    """Return the command line of Trino.

    :param settings: the file ``config.properties``
    :param data: folder of its runtime files
    :param options: additional options of its Java
    """
    (java,) = TRINO.folder.glob("lib/python*/site-packages/arcadedb_embedded/jre/bin/java")
    return [
        str(java),
        *("-Xmx1g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"),
        *("--add-modules=jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED"),
        "--sun-misc-unsafe-memory-access=allow",
        *options,
        f"-Dconfig={settings}",
        f"-Dplugin.dir={TRINO.folder / 'plugins'}",
        f"-Dnode.data-dir={data}",
        *("-cp", f"{TRINO.folder / 'classes'}:{TRINO.folder / 'jars'}/*", "TrinoServer", TRINO_VERSION),
    ]


TRINO = Tool("Trino", TOOLS / "trino", digest(_POM, _SOURCE, _JAVA), _trino, "--soak")
CLICKHOUSE = Tool("ClickHouse", TOOLS / "clickhouse", CLICKHOUSE_PACKAGE, _clickhouse, "--soak")
HTTPFS = Tool("DuckDB's HTTP", TOOLS / "duckdb-httpfs", _HTTPFS_PACKAGE, _httpfs, "--soak")
DBT = Tool("dbt", TOOLS / "dbt", " ".join(_DBT), _dbt, "--soak")
COSMOS = Tool("Cosmos", TOOLS / "cosmos", " ".join(_COSMOS), _cosmos, "--soak")
