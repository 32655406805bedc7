"""Engines that can read a table, by its format version and kinds of deletes.

Every fact about an engine is dated and has a source; a fact that was neither stated nor tested is None, and the engine
is then neither among those that can read a table nor among those that cannot.
"""

from __future__ import annotations

from dataclasses import dataclass

#: when the entries below were checked
CHECKED = "2026-11"
_TRIED = "executed in this project's tests"
_ATHENA = "https://docs.aws.amazon.com/athena/latest/ug/querying-iceberg.html"
_BIGQUERY = "https://cloud.google.com/bigquery/docs/iceberg-external-tables"
_BIGQUERY_V3 = "https://docs.cloud.google.com/lakehouse/docs/use-iceberg-v3-binary-deletion-vectors"
_CLICKHOUSE = (
    "https://github.com/ClickHouse/ClickHouse/blob/master/docs/en/engines/table-engines/integrations/iceberg.md"
)
_CLICKHOUSE_DELETES = "https://github.com/ClickHouse/ClickHouse/pull/83094"
_DATABRICKS = "https://docs.databricks.com/aws/en/iceberg/iceberg-v3"
_OLAKE, _OLAKE_DATABRICKS = (f"https://github.com/datazip-inc/olake-docs/pull/{number}" for number in (490, 518))
_PYICEBERG = "https://github.com/apache/iceberg-python/issues/1210"
_REDSHIFT = "https://docs.aws.amazon.com/redshift/latest/dg/iceberg-v3-features.html"
_SNOWFLAKE = (
    "https://docs.snowflake.com/en/user-guide/tables-iceberg-v3-specification-support",
    "https://docs.snowflake.com/release-notes/2025/other/"
    "2025-10-17-position-row-level-deletes-externally-managed-iceberg-ga",
    "https://github.com/airbytehq/airbyte/pull/82750",
    "https://github.com/MaterializeInc/materialize/pull/38458",
)
_STARROCKS = "https://github.com/StarRocks/starrocks/pull/37419"
_STARROCKS_V3 = "https://github.com/StarRocks/starrocks/issues/73947"
_TRINO, _TRINO_V3 = (
    "https://trino.io/docs/current/connector/iceberg.html",
    "https://github.com/trinodb/trino/pull/27788",
)
_SINCE_2026 = "Deletion vectors since 2026; older versions refuse them."
_UNAPPLIED = "Delete files of format version 2 may be left unapplied without an error: deleted rows show up again."
_MIXED = "1.5.5 takes vectors of other data files where a manifest mixes those of several Puffin files; ours does not."
_STALE = "Error 091968; a table that was registered before its first equality delete goes stale without an error."


@dataclass(frozen=True)
class Reader:
    """Read capabilities of one engine; None where nothing is known.

    :param name: the engine, with the first version that they apply to.
    :param equality_deletes: whether it applies equality-delete files.
    :param deletion_vectors: whether it applies deletion vectors (format version 3).
    :param sources: where that is stated.
    :param note: what happens otherwise.
    """

    name: str
    max_format_version: int
    equality_deletes: bool | None
    position_deletes: bool | None
    deletion_vectors: bool | None
    sources: tuple[str, ...]
    note: str = ""


# format version, then equality deletes, position deletes, deletion vectors
READERS: tuple[Reader, ...] = (
    Reader("Amazon Athena", 2, True, True, False, (_ATHENA, _OLAKE)),
    Reader("Amazon Redshift", 3, None, True, True, (_REDSHIFT,)),
    Reader("Apache Spark with Iceberg 1.12", 3, True, True, True, (_TRIED,)),
    Reader("ClickHouse 25.8", 2, True, True, False, (_CLICKHOUSE, _CLICKHOUSE_DELETES)),
    Reader("Databricks Runtime 18", 3, False, False, True, (_DATABRICKS, _OLAKE_DATABRICKS, _OLAKE), _UNAPPLIED),
    Reader("DuckDB 1.5", 3, True, True, True, (_TRIED,), _MIXED),
    Reader("Google BigQuery", 3, None, True, True, (_BIGQUERY, _BIGQUERY_V3), "Deletion vectors are a preview."),
    Reader("PyIceberg 0.12", 3, False, True, True, (_TRIED, _PYICEBERG)),
    Reader("Snowflake", 3, False, True, True, _SNOWFLAKE, _STALE),
    Reader("StarRocks", 2, True, True, None, (_STARROCKS, _STARROCKS_V3)),
    Reader("Trino", 3, True, True, True, (_TRINO, _TRINO_V3), _SINCE_2026),
)


def can_read(reader: Reader, format_version: int, equality_deletes: int, position_deletes: int) -> bool | None:
    """Check whether an engine can read a table with numbers of deletes, in files or rows; None if it is not known.

    In format version 3 position deletes count as deletion vectors, including position-delete files of an upgraded table
    until ``rewrite_delete_files`` converts them.
    """
    if format_version > reader.max_format_version:
        return False
    capabilities: list[bool | None] = []
    if equality_deletes:
        capabilities.append(reader.equality_deletes)
    if position_deletes:
        capabilities.append(reader.deletion_vectors if format_version >= 3 else reader.position_deletes)
    if False in capabilities:
        return False
    return None if None in capabilities else True


def readable_by(format_version: int, equality_deletes: int, position_deletes: int) -> list[str]:
    """Return the names of the engines that can read a table; see :func:`can_read`."""
    return [r.name for r in READERS if can_read(r, format_version, equality_deletes, position_deletes)]


def refused_by(format_version: int, equality_deletes: int, position_deletes: int) -> list[str]:
    """Return the names of the engines that are known not to read a table; see :func:`can_read`."""
    return [r.name for r in READERS if can_read(r, format_version, equality_deletes, position_deletes) is False]


def gained_by_rewrite(format_version: int, equality_deletes: int, position_deletes: int) -> list[str]:
    """Return the names of the engines that can read a table only after its equality deletes are rewritten."""
    refused = refused_by(format_version, equality_deletes, position_deletes)
    after = readable_by(format_version, 0, equality_deletes + position_deletes)
    return [name for name in after if name in refused]


def ready_for_v4(equality_deletes: int) -> bool:
    """Check whether a table is ready for format version 4, which does not allow new equality deletes.

    Existing ones stay valid (https://github.com/apache/iceberg/pull/17783), but every engine has to keep reading them;
    a table is ready once it has none.
    """
    return not equality_deletes
