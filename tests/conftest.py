"""Fixtures for every folder: one Spark session per test run and a lakehouse in a temporary folder."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from lakecdc.contract.runtime import packages
from local_services import kafka_jars, spark_classes
from local_services.setup_program import setup_program
from local_services.spark_classes import INTERPRETED, LARGE_HEAP, LONG_LIVED_JVM, PLANNED_ONCE, SHORT_LIVED_JVM
from tests.lakes import catalog_properties, open_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.iceberg.table import IcebergTable
    from local_services.s3 import S3Server

CATALOG = "lake"
# slow steps on a busy machine are not failures
hypothesis.settings.register_profile("lakecdc", hypothesis.settings(deadline=None))
hypothesis.settings.load_profile("lakecdc")
os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED_JVM)
# of a catalog in Postgres: Java loads the driver only from Iceberg's folder
_DRIVERS = packages({"type": "sql", "uri": "postgresql://localhost/", "warehouse": "file:"})
# of catalogs and tables at AWS, which only the service tests have and fetch
_DRIVERS += [coordinate for coordinate in packages({"type": "glue"}) if setup_program().fetched(coordinate).exists()]
for _name, _value in spark_classes.environment(more=_DRIVERS).items():
    os.environ.setdefault(_name, _value)


def interpreted() -> dict[str, str]:
    """Return the variable that makes jobs of other processes compile no queries, which is not Spark's default."""
    java = (os.environ["JDK_JAVA_OPTIONS"], *(f"-D{name}={value}" for name, value in INTERPRETED.items()))
    return {"JDK_JAVA_OPTIONS": " ".join(java)}


@dataclass
class Lake:
    """An Iceberg catalog in a folder, and the session that works on it."""

    spark: SparkSession
    folder: Path
    counter: Iterator[int] = field(default_factory=itertools.count)

    @property
    def properties(self) -> dict[str, str]:
        """The catalog properties in pyiceberg's names."""
        return catalog_properties(self.folder)

    def new_name(self, stem: str = "t") -> str:
        """Return an unused table name."""
        return f"test.{stem}_{next(self.counter)}"

    def sql(self, statement: str) -> Any:
        """Run SQL in the session."""
        return self.spark.sql(statement)

    def table(self, name: str) -> IcebergTable:
        """Load a table."""
        from lakecdc.iceberg.table import IcebergTable

        return IcebergTable(self.spark, CATALOG, name)

    def break_metadata(self, name: str) -> Callable[[], Path]:
        """Remove the metadata file that the catalog names for a table; return a function that restores it."""
        location = self.pyiceberg().load_table(name).metadata_location
        place = Path(location.removeprefix("file:").replace("//", "/"))
        away = place.with_name(f"{place.name}.away")
        # the session caches tables for a while
        self.sql(f"REFRESH TABLE {CATALOG}.{name}")
        place.rename(away)
        return lambda: away.replace(place)

    def spec(self, job: str, *tables: str, **rest: Any) -> dict[str, Any]:
        """Return a job spec document for this catalog."""
        return {
            "version": 1,
            "job": job,
            "catalog": {"name": CATALOG, "properties": self.properties},
            "tables": list(tables),
            **rest,
        }

    def pyiceberg(self) -> Any:
        """Return the same catalog in pyiceberg."""
        return _opened(self.folder)

    def duckdb_rows(self, name: str, columns: str = "*", ref: str | None = None) -> list[tuple[Any, ...]]:
        """Return the rows of a table, tag or branch as read by DuckDB, which shares no code with Spark."""
        from tests.readers import duckdb_rows

        table = self.pyiceberg().load_table(name)
        return duckdb_rows(table.metadata_location, columns, table.refs()[ref].snapshot_id if ref else None)


@cache
def _opened(folder: Path) -> Any:
    # opening it takes longer than loading a table
    return open_catalog(catalog_properties(folder))


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """Start an S3 server with an empty bucket named ``lab``."""
    from local_services.s3 import S3Server

    with S3Server(tmp_path_factory.mktemp("s3") / "buckets") as server:
        server.create_bucket("lab")
        yield server


@pytest.fixture(scope="session")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the session's catalog and warehouse."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def lake(lake_folder: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    """Start one lakehouse and one local Spark session for the whole run."""
    from lakecdc.contract.runtime import KAFKA_READER, source_packages
    from lakecdc.contract.sources.jdbc import JdbcSource
    from lakecdc.contract.spec import Catalog
    from lakecdc.runtime.session import open_session

    os.environ.setdefault("SPARK_MASTER", "local[2]")
    # like jobs do; its connections close themselves when pytest's log is closed already
    logging.getLogger("py4j").setLevel(logging.WARNING)
    opened = Lake(None, lake_folder)  # type: ignore[arg-type]
    drivers = source_packages(JdbcSource("jdbc:postgresql://localhost/", "changed"))
    # for the application, not for this session: jobs open their own sessions, which start with the application's
    # settings
    settings = INTERPRETED | PLANNED_ONCE
    arguments = " ".join([LARGE_HEAP, *(f"--conf {name}={value}" for name, value in settings.items())])
    if any(item.get_closest_marker("services") for item in request.session.items):
        drivers.append(KAFKA_READER)
        arguments += f" {kafka_jars.spark_arguments()}"
    with pytest.MonkeyPatch.context() as patch:
        if os.environ["JDK_JAVA_OPTIONS"] == SHORT_LIVED_JVM:
            patch.setenv("JDK_JAVA_OPTIONS", LONG_LIVED_JVM)
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{arguments} pyspark-shell")
        opened.spark = open_session(Catalog(CATALOG, opened.properties), "lakecdc-tests", drivers)
    # adaptive execution would choose the same for a handful of rows
    opened.spark.conf.set("spark.sql.shuffle.partitions", "1")
    _write_plain_files(opened.spark)
    opened.sql(f"CREATE NAMESPACE {CATALOG}.test")
    yield opened
    opened.spark.stop()


#: Hadoop starts a program for each file to set its rights
_WITHOUT_RIGHTS = """
public class PlainFiles extends org.apache.hadoop.fs.RawLocalFileSystem {
    public void setPermission(org.apache.hadoop.fs.Path path, org.apache.hadoop.fs.permission.FsPermission rights) {}
}
"""


def _write_plain_files(spark: SparkSession) -> None:
    """Let the session write local files with the rights of new files, and without checksums beside them."""
    java: Any = spark._jvm
    compiler = java.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_WITHOUT_RIGHTS)
    hadoop, kind = java.org.apache.hadoop, compiler.getClassLoader().loadClass("PlainFiles")
    files = hadoop.fs.LocalFileSystem(kind.getDeclaredConstructors()[0].newInstance(None))
    uri, conf = java.java.net.URI("file:///"), spark._jsc.hadoopConfiguration()
    files.initialize(uri, conf)
    files.setWriteChecksum(False)
    register = next(
        method
        for method in java.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem").getDeclaredMethods()
        if method.getName() == "addFileSystemForTesting"
    )
    register.setAccessible(True)
    gateway: Any = spark.sparkContext._gateway
    arguments = gateway.new_array(java.java.lang.Object, 3)
    arguments[0], arguments[1], arguments[2] = uri, conf, files
    register.invoke(None, arguments)
    assert hadoop.fs.FileSystem.get(uri, conf).equals(files)


@pytest.fixture(scope="session")
def spark(lake: Lake) -> SparkSession:
    """Return the session of ``lake``."""
    return lake.spark
