"""The ``target`` part of an ingest spec: how one Iceberg table is fed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lakecdc.contract import fields
from lakecdc.contract.errors import SpecError

#: columns that lakecdc adds to every keyed table; a view named ``<table>_view`` hides them
ORDER_COLUMN = "_lakecdc_order"
TIME_COLUMN = "_lakecdc_source_time"


@dataclass(frozen=True)
class Target:
    """One table to feed.

    :param table: ``namespace.name`` in the catalog.
    :param key: the columns that identify a row; empty means the source's primary key, where the source tells it.
    :param mode: only ``upsert`` so far: the table holds the source's current rows.
    :param partition_by: Iceberg transforms in SQL, such as ``bucket(8, id)`` or ``days(ts)``; used when creating.
    :param format_version: of a table to be created.
    :param source_table: ``schema.table`` at the source; default: the table's own name, in any schema for files.
    :param columns: types to use instead of the derived ones, Spark SQL type by column name.
    :param exclude_columns: source columns to leave out.
    :param properties: further table properties, used when creating.
    """

    table: str
    key: tuple[str, ...] = ()
    mode: Literal["upsert"] = "upsert"
    partition_by: tuple[str, ...] = ()
    format_version: Literal[2, 3] = 2
    source_table: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    exclude_columns: tuple[str, ...] = ()
    properties: dict[str, str] = field(default_factory=dict)


def parse_targets(document: Any) -> tuple[Target, ...]:
    """Check the spec's ``target``, one object or a list of them.

    :raises SpecError: an empty list, a table named twice, a key that is excluded.
    """
    if isinstance(document, Mapping):
        targets: tuple[Target, ...] = (fields.parse(Target, document, "target"),)
    elif isinstance(document, list | tuple) and document:
        targets = tuple(fields.parse(Target, item, f"target[{i}]") for i, item in enumerate(document))
    else:
        raise SpecError("target must be an object or a non-empty list of objects, one per table.")
    seen: set[str] = set()
    for target in targets:
        if "." not in target.table or not all(target.table.split(".")):
            raise SpecError(f"target.table is {target.table!r}.", hint='It must be "namespace.name".')
        if target.table in seen:
            raise SpecError(f"target names {target.table!r} twice.")
        seen.add(target.table)
        dropped = set(target.key) & set(target.exclude_columns)
        if dropped:
            raise SpecError(f"The key column {sorted(dropped)[0]!r} is also excluded.", table=target.table)
    return targets
