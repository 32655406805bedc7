"""The operator that registers and advances consumers of a table's changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake import consumers
from lakecdc.contract.errors import InputError
from lakecdc.metadata.consumers import LIMIT


class ConsumerOperator(BaseOperator):
    """Register, move or drop a consumer, so that ``expire_snapshots`` keeps its unread snapshots. Needs no Spark.

    The return value is the id of the last snapshot that the consumer read, as text; None if it was dropped.

    :param table: ``namespace.name``. (templated)
    :param consumer: its name. (templated)
    :param action: ``register``, ``move`` or ``drop``.
    :param snapshot_id: the last snapshot it read; required for ``move``; default of ``register``: the head. (templated)
    :param limit: seconds without progress, while there are changes to read, after which its snapshots may expire.
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    """

    template_fields: Sequence[str] = ("table", "consumer", "snapshot_id", "catalog_conn_id")

    def __init__(
        self,
        *,
        table: str,
        consumer: str,
        action: Literal["register", "move", "drop"] = "move",
        snapshot_id: str | int | None = None,
        limit: float = LIMIT,
        catalog_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.consumer = consumer
        self.action = action
        self.snapshot_id = snapshot_id
        self.limit = limit
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()

    def execute(self, context: Context) -> str | None:
        """Register, move or drop the consumer.

        :raises AirflowFailException: the table, consumer or snapshot does not exist.
        """
        catalog, snapshot_id = get_catalog(self.catalog_conn_id), self._snapshot_id()
        try:
            if self.action == "drop":
                consumers.drop_consumer(catalog, self.table, self.consumer)
                return None
            if self.action == "register":
                moved = consumers.register_consumer(
                    catalog, self.table, self.consumer, snapshot_id=snapshot_id, limit=self.limit
                )
            elif snapshot_id is None:
                raise AirflowFailException(
                    f"Action 'move' needs snapshot_id, the last snapshot that {self.consumer!r} read."
                )
            else:
                moved = consumers.move_consumer(catalog, self.table, self.consumer, snapshot_id)
        except InputError as error:
            raise AirflowFailException(str(error)) from error
        self.log.info("%s: %s has read up to snapshot %d", self.table, self.consumer, moved.snapshot_id)
        return str(moved.snapshot_id)

    def _snapshot_id(self) -> int | None:
        if self.snapshot_id in (None, "", "None"):
            return None
        try:
            return int(str(self.snapshot_id))
        except ValueError as error:
            raise AirflowFailException(f"snapshot_id {self.snapshot_id!r} is not a snapshot id.") from error
