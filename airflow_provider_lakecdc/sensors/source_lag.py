"""The sensor of source lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc.sensors.polling import LimitSensor
from airflow_provider_lakecdc.triggers.polling import Side
from airflow_provider_lakecdc.triggers.source_lag import SourceLagTrigger


class SourceLagSensor(LimitSensor):
    """Wait until tables lag behind their source's log by more than a limit, or none does.

    ``until="above"`` waits for a table with a larger lag, to ingest when needed instead of by the clock.
    ``until="below"`` waits until no table has one, before readers that need recent data. A table that was never fed has
    an infinite lag. Each check reads one metadata file per table and queries the end of the source's log. A position
    from which ingestion cannot continue, such as one of another cluster, fails the task.

    Postgres' log grows with all databases of the server, and a little by itself: limits below some megabytes are passed
    without a change to the tables.

    :param tables: ``namespace.name`` of each table. (templated)
    :param source: the ``source`` of the job that feeds them, of type ``postgres`` or ``kafka``. (templated)
    :param source_conn_id: connection with the source's address and login. (templated)
    :param max_lag: bytes of the log for ``postgres``, messages for ``kafka``. (templated)
    :param until: ``above`` or ``below``. (templated)
    :param kwargs: see :class:`airflow_provider_lakecdc.sensors.polling.PollingSensor`.
    """

    trigger_class = SourceLagTrigger
    template_fields: Sequence[str] = (*LimitSensor.template_fields, "source", "source_conn_id", "max_lag")
    template_fields_renderers: ClassVar[dict[str, str]] = {"source": "json"}

    def __init__(
        self,
        *,
        tables: str | Sequence[str],
        source: Mapping[str, Any],
        source_conn_id: str,
        max_lag: int | str,
        until: Side | str = "above",
        **kwargs: Any,
    ) -> None:
        super().__init__(tables=tables, until=until, **kwargs)
        self.source = source
        self.source_conn_id = source_conn_id
        self.max_lag = max_lag

    def parsed(self) -> dict[str, Any]:
        """Return the tables and the limit."""
        tables = super().parsed()
        try:
            limit = int(self.max_lag)
        except ValueError as error:
            raise AirflowFailException(f"max_lag {self.max_lag!r} is not a whole number.") from error
        if limit < 0:
            raise AirflowFailException(f"max_lag must not be negative, got {limit}.")
        return {**tables, "max_lag": limit}
