"""Structs that tasks hand to Spark: their types, and their values in Arrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    import pyarrow as pa


def struct_type(types: Mapping[str, str]) -> str:
    """Return the Spark SQL type of a struct; without members it has one, ``none``, as Spark stores no empty struct.

    :param types: Spark SQL types by name.
    """
    members = ", ".join(f"{quoted_column(name)}: {kind}" for name, kind in types.items())
    return f"struct<{members or 'none: string'}>"


def struct_of(columns: Sequence[tuple[str, pa.Array]], count: int, mask: pa.Array | None = None) -> pa.Array:
    """Return a struct of named columns, of the type that :func:`struct_type` gives it.

    :param count: of rows.
    :param mask: true where the struct is null.
    """
    import pyarrow as pa

    named = columns or [("none", pa.nulls(count, pa.string()))]
    return pa.StructArray.from_arrays([values for _, values in named], [name for name, _ in named], mask=mask)
