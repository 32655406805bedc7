"""Values of a full load as Arrow reads them from their texts, wherever that is what ``types.typed`` makes of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lakecdc.ingest.change import OddValueError
from lakecdc.ingest.sources.hexadecimal import octets
from lakecdc.ingest.sources.mysql.types import BYTES, DATED
from lakecdc.model.columns import arrow_type
from lakecdc.row_values import without_values

if TYPE_CHECKING:
    import pyarrow as pa

    from lakecdc.ingest.change import Column
    from lakecdc.ingest.sources.mysql.catalog import SourceTable

ZERO_DATE = "^(0000|.{5}00|.{8}00)"


def odd_for_arrow(table: SourceTable, columns: Iterable[Column]) -> str | None:
    """Return the first column whose text Arrow might read as something else than Spark; None if none is.

    Where the target gives a type of its own, a value may need rounding or bounds that Arrow does not keep.

    :param columns: the target's.
    """
    own = {column.name: column for column in table.columns}
    for c in columns:
        source = own[c.name]
        derived = source.named.type.spark if source.named.type else None
        if is_odd_for_arrow(source.base, derived, c.type):
            return f"column {c.name!r} is {c.type}, made of {source.type_name}"
    return None


def is_odd_for_arrow(base: str, derived: str | None, kind: str) -> bool:
    """Tell whether Arrow might read the texts of a column as something else than Spark.

    :param base: of its type at the source.
    :param derived: Spark SQL type that this becomes.
    :param kind: the target's.
    """
    is_text = kind == "string" and base not in BYTES
    return not is_text and (kind != derived or arrow_type(kind) is None)


def converted(texts: pa.Array, base: str, kind: str, column: str) -> pa.Array:
    """Return the values of texts.

    :param base: of the column's type at the source.
    :param kind: Spark SQL type.
    :param column: its name, for the error.
    :raises OddValueError: a text is not of its column's type.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if base in BYTES:
        return octets(texts, column)
    wanted = arrow_type(kind)
    try:
        if base in DATED and kind != "string":
            # dates that are none become null; whether others are is for Spark to judge
            texts = pc.if_else(pc.match_substring_regex(texts, ZERO_DATE), pa.scalar(None, pa.string()), texts)
        if kind == "timestamp":
            return pc.assume_timezone(texts.cast(pa.timestamp("us")), "UTC")
        return texts.cast(wanted)
    except pa.ArrowInvalid as error:
        raise OddValueError(f"column {column!r}: {without_values(str(error))}") from error
