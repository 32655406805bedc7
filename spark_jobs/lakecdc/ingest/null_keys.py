"""Rows without a value in a key column, which no table of current rows can hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.explain import explain
from lakecdc.sql import quoted_column

if TYPE_CHECKING:
    from lakecdc.ingest.batch import Batch

_VIOLATION = "NOT_NULL_ASSERT_VIOLATION"
_TIMES = ("date", "timestamp")


def null_key(batch: Batch, error: Exception) -> InputError | None:
    """Name the key column whose missing value has failed a batch; None if the batch failed for another reason.

    :param error: what applying it has raised.
    """
    cause = explain(error)
    if cause is None or _VIOLATION not in cause.text or batch.rows is None or not batch.key:
        return None
    rows = batch.rows.frame.where("op != 'd' AND row IS NOT NULL")
    missing = rows.select(*[F.col("row")[name].isNull().alias(name) for name in batch.key])
    row = missing.where(" OR ".join(map(quoted_column, batch.key))).first()
    columns = [name for name in batch.key if row is None or row[name]]
    types = {column.name: column.type for column in batch.columns}
    hint = 'Fill it at the source, or set "key" in the target to columns that always have a value.'
    if any(types.get(name, "").startswith(_TIMES) for name in columns):
        hint += f' A date that no calendar has is null as well; "columns": {{"{columns[0]}": "string"}} keeps its text.'
    return InputError(
        f"The key column {' or '.join(map(repr, columns))} has no value in a row of the source, so the row cannot be "
        "identified. Nothing was written.",
        table=batch.target.table,
        hint=hint,
    )
