"""Apply a TRUNCATE at the source by the target's policy."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakecdc.contract.errors import InputError
from lakecdc.metadata import names
from lakecdc.model.order import time_of, void_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.batch import Batch


def check(batch: Batch) -> None:
    """Raise an InputError if the policy is ``stop``, or if rows of other source tables would be removed."""
    order, policy = batch.truncate_order, batch.target.on_truncate
    if not order:
        return
    if policy == "stop":
        raise InputError(
            f"The source table was truncated at {_moment(order)}, and on_truncate is 'stop'.",
            table=batch.target.table,
            hint="Set on_truncate of the target to 'apply' to empty the table as well, or to 'mark' to keep its rows.",
        )
    if policy == "apply" and batch.target.keyed and batch.target.source_tables:
        raise InputError(
            f"One of the source tables that share this table was truncated at {_moment(order)}; applied here, it would "
            "remove the rows of the others as well.",
            table=batch.target.table,
            hint="Set on_truncate of the target to 'mark', then delete that source table's rows by hand.",
        )


def is_late(batch: Batch, mark: str | None) -> bool:
    """Check whether the table, whose highest order key is ``mark``, may hold rows newer than the batch's TRUNCATE."""
    return bool(batch.truncate_order and mark and batch.truncate_order <= mark)


def drop_emptied(rows: DataFrame, truncated: str) -> tuple[DataFrame, int]:
    """Drop folded rows from before an applied TRUNCATE with this order key, and return their number too."""
    older = F.expr(void_sql("`order`", truncated))
    return rows.where(~older), rows.where(older).count()


def marked(table: IcebergTable, batch: Batch, metrics: dict[str, Any]) -> Batch:
    """Return the batch without its TRUNCATE if the policy is ``mark``, which only records the moment."""
    if not batch.truncate_order or batch.target.on_truncate != "mark":
        return batch
    moment = _moment(batch.truncate_order)
    metrics["truncate_marked"] = moment
    table.update_properties({names.TRUNCATED: moment})
    return replace(batch, truncate_order=None)


def _moment(order: str) -> str:
    return datetime.fromtimestamp(time_of(order) / 1000, UTC).isoformat()
