"""Selection of the Parquet columns that may contain a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import product
from typing import TYPE_CHECKING

from lakecdc.contract.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

#: lower-case names that each field of a table has had, by field id
KnownColumns = Mapping[int, Set[str]]
# Iceberg's specification reserves the field ids above for metadata columns
_RESERVED_ABOVE = 2147483447
# the deleted row itself, in position deletes of old writers
_DELETED_ROW = 2147483544


def columns_to_compare(
    schema: pa.Schema, key: Sequence[int], known: KnownColumns, *, is_referenced: bool
) -> list[tuple[str, ...]]:
    """Choose the columns to compare with the key, by field id, and by name where ids prove nothing.

    Iceberg reads a referenced file by its field ids. Any other file may come from another writer, whose ids mean other
    columns.

    :param key: field ids of the key's columns.
    :param known: names of the table's columns.
    :return: the columns of each comparison, in the order of ``key``; empty if the file has no key column.
    :raises UnsupportedError: the file has columns unknown to the table, and not every key column by name.
    """
    columns = [(_field_id(field), field.name) for field in schema]
    if any(field_id == _DELETED_ROW for field_id, _ in columns):
        raise UnsupportedError("position deletes that contain the deleted rows")
    by_id = [[name for own, name in columns if own == field_id] for field_id in key]
    if is_referenced and all(field_id is not None for field_id, _ in columns):
        return [*product(*by_id)]
    by_name = [[name for _, name in columns if name.lower() in known.get(field_id, ())] for field_id in key]
    foreign = [name for field_id, name in columns if not _is_known(field_id, name, known)]
    if foreign and not all(by_name):
        raise UnsupportedError("columns that the table does not have, and not all of its key columns")
    return [*product(*([*dict.fromkeys(pair[0] + pair[1])] for pair in zip(by_id, by_name, strict=True)))]


def _field_id(field: pa.Field) -> int | None:
    field_id = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if field_id is None or int(field_id) < 0 else int(field_id)


def _is_known(field_id: int | None, name: str, known: KnownColumns) -> bool:
    if field_id is None:
        return False
    return field_id > _RESERVED_ABOVE or name.lower() in known.get(field_id, ())
