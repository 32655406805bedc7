"""Sharing of delete files among an executor's tasks, and its safe use.

Iceberg (1.12) caches the keys of an equality delete in the type of its first reader, and hands them to every later
reader. If a key column was an ``int`` for the first and is a ``bigint`` for the next one, such as after a read of an
older snapshot, no key matches, and deleted rows reappear.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Spark setting of the cache
DELETES_SHARED = "spark.sql.iceberg.executor-cache.delete-files.enabled"
# members of a nested type in Iceberg's JSON, with the names of their ids
_MEMBERS = {"element": "element-id", "key": "key-id", "value": "value-id"}


def stop_sharing_deletes(spark: SparkSession) -> None:
    """Make each task of a session read its delete files itself from now on."""
    spark.conf.set(DELETES_SHARED, "false")


def has_promoted_column(schemas: Iterable[Mapping[str, Any]]) -> bool:
    """Check whether a column, nested ones included, has more than one type in the schemas (Iceberg's JSON)."""
    types: dict[int, str] = {}
    return any(types.setdefault(id, kind) != kind for schema in schemas for id, kind in _primitives(schema))


def _primitives(kind: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    members = [(field["id"], field["type"]) for field in kind.get("fields", ())]
    members += [(kind[id], kind[name]) for name, id in _MEMBERS.items() if id in kind]
    for id, member in members:
        if isinstance(member, str):
            yield id, member
        else:
            yield from _primitives(member)
