"""Which columns of a Parquet file may hold a key, and whether the file can be judged at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import product
from typing import TYPE_CHECKING

from lakecdc.contract.errors import UnsupportedError

if TYPE_CHECKING:
    import pyarrow as pa

#: names, in small letters, that each field of a table has had, by field id
KnownColumns = Mapping[int, Set[str]]
# Iceberg's specification reserves the field ids above for metadata columns
_RESERVED_ABOVE = 2147483447
# the deleted row itself, in position deletes of old writers
_DELETED_ROW = 2147483544


def columns_to_compare(
    schema: pa.Schema, key: Sequence[int], known: KnownColumns, *, is_referenced: bool
) -> list[tuple[str, ...]]:
    """Choose the columns that are compared with the key, by field id, and by name where ids prove nothing.

    Iceberg reads a file that the table refers to by its field ids. Any other file may be of another writer, whose ids
    mean other columns.

    :param key: field ids of the key's columns.
    :param known: of the table.
    :return: the columns for each comparison, in the order of ``key``; none if the file has no column of the key.
    :raises UnsupportedError: the file has columns that the table does not know, and none that is called like the key.
    """
    columns = [(_field_id(field), field.name) for field in schema]
    if any(field_id == _DELETED_ROW for field_id, _ in columns):
        raise UnsupportedError("position deletes that hold the deleted rows")
    by_id = [[name for own, name in columns if own == field_id] for field_id in key]
    if is_referenced and all(field_id is not None for field_id, _ in columns):
        return [*product(*by_id)]
    by_name = [[name for _, name in columns if name.lower() in known.get(field_id, ())] for field_id in key]
    foreign = [name for field_id, name in columns if not _is_known(field_id, name, known)]
    if foreign and not all(by_name):
        raise UnsupportedError("columns that the table does not have, and not all of its key's")
    return [*product(*([*dict.fromkeys(pair[0] + pair[1])] for pair in zip(by_id, by_name, strict=True)))]


def _field_id(field: pa.Field) -> int | None:
    found = (field.metadata or {}).get(b"PARQUET:field_id")
    return None if found is None or int(found) < 0 else int(found)


def _is_known(field_id: int | None, name: str, known: KnownColumns) -> bool:
    if field_id is None:
        return False
    return field_id > _RESERVED_ABOVE or name.lower() in known.get(field_id, ())
