"""OpenLineage names of the sources of tables.

Names: OpenLineage's specification, "Naming Conventions", https://openlineage.io/docs/spec/naming.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from lakecdc.contract.sources import Source
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.target import Target

#: namespace and name of a dataset
Name = tuple[str, str]
_GLOB = re.compile(r"(?<![^/])[^/*?\[{]*[*?\[{].*")
_JDBC = {"postgresql": ("postgres", 5432), "mysql": ("mysql", 3306)}


def source_names(source: Source | None, target: Target, table: str, metrics: Mapping[str, Any]) -> list[Name]:
    """Return the datasets that a table is fed from or compared with; empty if the specification has no name for them.

    :param table: differs from the target's if that is a pattern.
    :param metrics: of the table's report; its position names the topics read.
    """
    if isinstance(source, KafkaSource):
        topics = metrics.get("position", {}).get("topics", source.topics)
        # a cluster is named by its first broker
        return [(f"kafka://{source.bootstrap_servers.split(',')[0].strip()}", topic) for topic in topics]
    if isinstance(source, FilesSource):
        paths = [source.path] if isinstance(source.path, str) else source.path
        return [place_name(_GLOB.sub("", path)) for path in paths]
    if (name := _table_at_source(target, table)) is None:
        return []
    if isinstance(source, PostgresSource):
        return [_postgres_name(source, name)]
    if isinstance(source, MysqlSource):
        schema = source.database if source.database and "." not in (target.source_table or "") else name[0]
        return [(f"mysql://{source.host}:{source.port}", f"{schema}.{name[1]}")]
    return _jdbc_names(source.url, name) if isinstance(source, JdbcSource) else []


def place_name(location: str) -> Name:
    """Return the name of a file or folder by path or URI: the store is the namespace, the path in it the name."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return "file", unquote(parts.path).rstrip("/") or "/"
    return f"{re.sub('^s3[an]$', 's3', parts.scheme)}://{parts.netloc}", parts.path.strip("/") or "/"


def _table_at_source(target: Target, table: str) -> tuple[str, str] | None:
    """Return schema and name of a table at the source; None if the schema is unknown."""
    if target.is_pattern:
        pattern = (
            re.escape(target.table).replace(r"\{schema\}", r"(?P<schema>.+)").replace(r"\{table\}", "(?P<table>.+)")
        )
        match = re.fullmatch(pattern, table)
        parts = match.groupdict() if match else {}
        return (parts["schema"], parts["table"]) if {"schema", "table"} <= set(parts) else None
    namespace, name = table.split(".")[-2:]
    schema, dot, source_table = (target.source_table or name).rpartition(".")
    return (schema if dot else namespace, source_table)


def _postgres_name(source: PostgresSource, name: tuple[str, str]) -> Name:
    from psycopg.conninfo import conninfo_to_dict

    address = conninfo_to_dict(source.dsn)
    host, port = (str(address.get(key) or default).split(",")[0] for key, default in _LIBPQ.items())
    return f"postgres://{host}:{port}", ".".join([str(address.get("dbname") or address.get("user") or ""), *name])


def _jdbc_names(url: str, name: tuple[str, str]) -> list[Name]:
    parts = urlsplit(url.removeprefix("jdbc:"))
    if parts.scheme not in _JDBC:
        return []
    scheme, port = _JDBC[parts.scheme]
    within = [parts.path.strip("/"), *name] if scheme == "postgres" else list(name)
    return [(f"{scheme}://{parts.hostname}:{parts.port or port}", ".".join(within))]


_LIBPQ = {"host": "localhost", "port": "5432"}
