"""The base of all sensors, which check tables on a worker or in the triggerer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any, ClassVar, get_args

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.submit.submission import table_list
from airflow_provider_lakecdc.triggers.polling import PollingTrigger, Side


class PollingSensor(BaseSensorOperator):
    """Wait for the condition of a :class:`airflow_provider_lakecdc.triggers.polling.PollingTrigger`.

    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    :param deferrable: wait in the triggerer instead of a worker; default: ``[operators] default_deferrable``.
    :param kwargs: arguments of ``BaseSensorOperator``, such as ``poke_interval`` and ``timeout`` in seconds.
    """

    #: what is checked; its fields have the values of the sensor's arguments of their names
    trigger_class: ClassVar[type[PollingTrigger]]
    template_fields: Sequence[str] = ("catalog_conn_id",)
    ui_color = "#d9ecf2"

    def __init__(self, *, catalog_conn_id: str | None = None, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable

    def trigger(self) -> PollingTrigger:
        """Create the trigger."""
        given = {**vars(self), "poll_interval": self.poke_interval, **self.parsed()}
        return self.trigger_class(**{each.name: given[each.name] for each in fields(self.trigger_class)})

    def parsed(self) -> dict[str, Any]:
        """Return fields of the trigger that are not plain arguments, such as numbers that a template rendered.

        :raises AirflowFailException: an argument is invalid.
        """
        return {}

    def poke(self, context: Context) -> PokeReturnValue:
        """Check once."""
        trigger = self.trigger()
        result = trigger.check(get_catalog(self.catalog_conn_id))
        self.log.info("Waiting for %s; result: %s", trigger.goal.format_map(vars(trigger)), result or "not yet")
        return PokeReturnValue(result is not None, result)

    def execute(self, context: Context) -> Any:
        """Wait on the worker, or check once and then wait in the triggerer."""
        if not self.deferrable:
            return super().execute(context)
        first = self.poke(context)
        if first.is_done:
            return first.xcom_value
        self.defer(
            trigger=self.trigger(),
            method_name="execute_complete",
            # the base class converts this timeout to AirflowSensorTimeout
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Process the trigger's event.

        :raises LakecdcJobError: a table could not be read.
        """
        if event.get("status") != "reached":
            raise LakecdcJobError(f"The wait failed: {event.get('message', event)}")
        (result,) = (value for name, value in event.items() if name != "status")
        self.log.info("Result: %s", result)
        return result


class LimitSensor(PollingSensor):
    """Wait until some table is past a limit, or none is.

    :param tables: ``namespace.name`` of each table. (templated)
    :param until: ``above`` or ``below``. (templated)
    :param kwargs: see :class:`PollingSensor`.
    """

    template_fields: Sequence[str] = (*PollingSensor.template_fields, "tables", "until")

    def __init__(self, *, tables: str | Sequence[str], until: Side | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.until = until

    def parsed(self) -> dict[str, Any]:
        """Return the tables; refuse an empty list."""
        if not (tables := table_list(self.tables)):
            raise AirflowFailException("tables is empty. Name at least one table.")
        if self.until not in get_args(Side):
            raise AirflowFailException(f"Expected until='above' or 'below', got {self.until!r}.")
        return {"tables": tables}
