"""Versions and jars that work together, and Spark settings derived from a catalog's properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from lakecdc.contract.errors import SpecError
from lakecdc.contract.secrets import is_reference, resolve
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.kafka import KafkaSource

ICEBERG_VERSION = "1.12.0"
SPARK_MINOR = "4.1"
#: text in a job's log before the address of Spark's page
SPARK_UI = "Spark UI at "
#: text before the id of an application whose events Spark keeps for its history server
EVENT_LOG = "Spark keeps the events of "
#: text before the current work and, after ``: ``, its progress
PROGRESS = "progress of "
#: Java versions that Spark is started with; from 24 on Java lacks the security manager that Hadoop asks for
JAVA_OLDEST, JAVA_NEWEST = 17, 23
#: value of the variable JDK_JAVA_OPTIONS. A job is short, and with HotSpot's default thresholds its second
#: compiler takes a fifth of the cores for code that is about to end; ten times higher ones still serve long loops.
JAVA_OPTIONS = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_RUNTIME = f"org.apache.iceberg:iceberg-spark-runtime-{SPARK_MINOR}_2.13:{ICEBERG_VERSION}"
_AWS_BUNDLE = f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG_VERSION}"
# any 4.1 fits any 4.1
KAFKA_READER = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_MINOR}.1"
_JDBC_DRIVERS = {
    "sqlite": "org.xerial:sqlite-jdbc:3.47.1.0",
    "postgresql": "org.postgresql:postgresql:42.7.7",
    "mysql": "com.mysql:mysql-connector-j:9.3.0",
}
#: our own catalog type, which pyiceberg lacks: tables in a bucket or a folder, without a catalog service
OBJECT_STORE = "object_store"
# Spark reaches an object store through an endpoint in the driver
_TYPES = {"sql": "jdbc", "rest": "rest", "hive": "hive", "glue": "glue", OBJECT_STORE: "rest"}
# settings of pyiceberg and of ours that Java does not know
_PYTHON_ONLY = re.compile(
    r"^(py-.*|echo|pool_pre_ping|init_catalog_tables|downcast-.*|readable_paths|commit_service|dynamodb\..*)$"
)
_RENAMED = {"s3.region": "client.region"}
# parses a URL as SQLAlchemy does: only the @ ends a password
_SQL_URL = re.compile(r"(?:(?P<user>[^:/]*)(?::(?P<password>[^@]*))?@)?(?P<rest>.*)", re.DOTALL)


def packages(properties: Mapping[str, Any]) -> list[str]:
    """Return the Maven coordinates that a Spark session needs for a catalog.

    :param properties: pyiceberg properties. If only the job can resolve the secret reference of the URI, all drivers
        are returned.
    """
    properties = {key: _known_here(value) for key, value in properties.items()}
    coordinates = [_RUNTIME]
    if catalog_type(properties) == "sql":
        coordinates += _catalog_drivers(properties.get("uri"))
    if uses_s3(properties):
        coordinates.append(_AWS_BUNDLE)
    return coordinates


def _known_here(value: Any) -> Any:
    try:
        return resolve(value, "")
    except SpecError:
        return value


def _catalog_drivers(uri: Any) -> list[str]:
    if is_reference(uri):
        return list(_JDBC_DRIVERS.values())
    dialect = str(uri or "sqlite").split(":", 1)[0].split("+", 1)[0]
    if dialect not in _JDBC_DRIVERS:
        raise SpecError(f"No JDBC driver is known for a catalog at {dialect}://.")
    return [_JDBC_DRIVERS[dialect]]


def source_packages(source: object) -> list[str]:
    """Return further Maven coordinates for a source: a ``jdbc`` driver, Spark's Kafka reader."""
    if isinstance(source, JdbcSource):
        return [_JDBC_DRIVERS[source.dialect]]
    return [KAFKA_READER] if isinstance(source, KafkaSource) and source.reader == "spark" else []


def uses_s3(properties: Mapping[str, Any]) -> bool:
    """Check whether tables of the catalog may be in S3, by its type, warehouse and ``s3.`` properties."""
    warehouse = str(properties.get("warehouse", ""))
    if warehouse.startswith(("file:", "/", "hdfs:", "gs:", "abfs")):
        return False
    return (
        warehouse.startswith(("s3://", "s3a://"))
        or catalog_type(properties) == "glue"
        or any(key.startswith("s3.") for key in properties)
    )


def catalog_type(properties: Mapping[str, Any]) -> str:
    """Return the type of a catalog, inferred as pyiceberg does.

    :raises SpecError: the type is not supported, or an object store lacks its warehouse.
    """
    kind = properties.get("type")
    if kind is None:
        uri = str(properties.get("uri", ""))
        kind = "rest" if uri.startswith("http") else "hive" if uri.startswith("thrift") else "sql"
    if kind not in _TYPES:
        raise SpecError(f"catalog type {kind!r} is not supported.", hint=f"Use one of {', '.join(_TYPES)}.")
    if kind == OBJECT_STORE and not properties.get("warehouse"):
        raise SpecError(
            f"A catalog of type {OBJECT_STORE} needs a warehouse: the bucket or folder that holds tables and catalog.",
            hint='Set "warehouse" to a location such as s3://bucket/lake.',
        )
    return str(kind)


def refuse_unfit(name: str, settings: Mapping[str, Any]) -> None:
    """Refuse a catalog that does not keep what jobs rely on.

    :param settings: its properties, including those from its server.
    :raises SpecError: it is Nessie, which keeps neither a table's former snapshots nor its tags.
    """
    if settings.get("nessie.is-nessie-catalog") == "true":
        raise SpecError(
            f"The catalog {name!r} is Nessie, which keeps only the last snapshot of a table and no tags, so jobs would "
            "lose the positions of their sources.",
            hint="Use another catalog; docs/operations/catalogs.md lists supported ones.",
        )


def spark_properties(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return Spark's configuration ``spark.sql.catalog.<name>…`` for a catalog.

    :param properties: pyiceberg's, with secrets resolved; of an object store with its endpoint's ``uri`` and ``token``.
    """
    prefix = f"spark.sql.catalog.{name}"
    kind = catalog_type(properties)
    mapped = {"type": _TYPES[kind]}
    for key, value in properties.items():
        if key in ("type", "uri") or _PYTHON_ONLY.match(key):
            continue
        if key == "s3.force-virtual-addressing":
            mapped["s3.path-style-access"] = "false" if str(value).lower() == "true" else "true"
        else:
            mapped[_RENAMED.get(key, key)] = str(value)
    if "uri" in properties:
        mapped.update(_jdbc(properties["uri"]) if kind == "sql" else {"uri": properties["uri"]})
    if uses_s3(properties):
        mapped.setdefault("io-impl", "org.apache.iceberg.aws.s3.S3FileIO")
        if "s3.endpoint" in mapped:
            mapped.setdefault("s3.path-style-access", "true")
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{k}": v for k, v in mapped.items()}


def _jdbc(uri: str) -> dict[str, str]:
    """Convert a SQLAlchemy URL to JDBC settings, with user and password apart."""
    dialect, rest = uri.split("://", 1)
    dialect = dialect.split("+", 1)[0]
    settings = {"jdbc.schema-version": "V1"}
    if dialect == "sqlite":
        # sqlite:////abs/path and sqlite:///relative/path
        return settings | {"uri": f"jdbc:sqlite:{rest[1:]}"}
    parts = _SQL_URL.fullmatch(rest)
    assert parts is not None, "every part is optional"
    login = {"jdbc.user": parts["user"], "jdbc.password": parts["password"]}
    settings |= {name: unquote(value) for name, value in login.items() if value}
    return settings | {"uri": f"jdbc:{dialect}://{parts['rest']}"}
