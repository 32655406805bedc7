"""Values of the log as Arrow reads them from their texts, wherever that is what ``types.typed`` makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakecdc.ingest.change import OddValueError
from lakecdc.ingest.sources.hexadecimal import octets
from lakecdc.model.columns import arrow_type
from lakecdc.row_values import without_values

if TYPE_CHECKING:
    import pyarrow as pa


def converted(texts: pa.Array, _base: str, kind: str, column: str) -> pa.Array:
    """Return the values of texts in columns that ``types.TypeCatalog.odd_for_arrow`` has nothing against.

    :param kind: Spark SQL type.
    :param column: its name, for the error.
    :raises OddValueError: a text is not of its column's type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind == "string":
        return texts
    if kind == "boolean":
        return pc.equal(texts, "t")
    if kind == "binary":
        return octets(texts, column, len("\\x"))
    try:
        return texts.cast(arrow_type(kind))
    except pa.ArrowInvalid as error:
        raise OddValueError(f"column {column!r}: {without_values(str(error))}") from error
