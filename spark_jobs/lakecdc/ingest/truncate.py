"""What a TRUNCATE at the source does to the target, by the target's policy."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lakecdc.contract.errors import InputError
from lakecdc.ingest.order import time_of
from lakecdc.metadata import names

if TYPE_CHECKING:
    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.ingest.change import TableBatch


def check(batch: TableBatch) -> None:
    """Refuse a TRUNCATE where the policy says ``stop``.

    :raises InputError: nothing of the batch has been written then.
    """
    if batch.truncate_order and batch.target.on_truncate == "stop":
        raise InputError(
            f"The source table was truncated at {_moment(batch.truncate_order)}, and on_truncate is 'stop'.",
            table=batch.target.table,
            hint="Set on_truncate of the target to 'apply' to empty the table as well, or to 'mark' to keep its rows.",
        )


def marked(table: IcebergTable, batch: TableBatch, metrics: dict[str, Any]) -> TableBatch:
    """The batch as the table takes it: with ``mark`` its rows stay, and the moment is noted.

    :param metrics: takes up the moment.
    """
    if not batch.truncate_order or batch.target.on_truncate != "mark":
        return batch
    moment = _moment(batch.truncate_order)
    metrics["truncate_marked"] = moment
    table.update_properties({names.TRUNCATED: moment})
    return replace(batch, truncate_order=None)


def _moment(order: str) -> str:
    return datetime.fromtimestamp(time_of(order) / 1000, UTC).isoformat()
