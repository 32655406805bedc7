"""The base of all sensors, which check tables on a worker or in the triggerer, and limits that they wait for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Literal, TypeVar, get_args

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue, conf
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.submit.submission import table_list
from airflow_provider_lakecdc.triggers.polling import PollingTrigger

#: the awaited side of a limit
Side = Literal["above", "below"]
T = TypeVar("T")


class PollingSensor(BaseSensorOperator):
    """Wait until a check of a catalog's tables has a result.

    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    :param deferrable: wait in the triggerer instead of a worker; default: ``[operators] default_deferrable``.
    :param kwargs: arguments of ``BaseSensorOperator``, such as ``poke_interval`` and ``timeout`` in seconds.
    """

    #: the awaited state, for the log; formatted with the arguments of the check
    goal: ClassVar[str]
    template_fields: Sequence[str] = ("catalog_conn_id",)

    def __init__(self, *, catalog_conn_id: str | None = None, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = deferrable

    @staticmethod
    @abstractmethod
    def check(*args: Any, **kwargs: Any) -> Any | None:
        """Check tables once: of a catalog, with the arguments of :meth:`check_arguments`.

        The triggerer imports the class that defines it, so that class cannot be in a DAG file.

        :return: the result as JSON; None to keep waiting.
        :raises LakecdcJobError: the result depends on a table that cannot be read.
        """

    @abstractmethod
    def check_arguments(self) -> dict[str, Any]:
        """Return the arguments of the check as JSON.

        :raises AirflowFailException: an argument is invalid, such as a number that a template rendered.
        """

    def trigger(self) -> PollingTrigger:
        """Create the trigger."""
        # not the sensor's own class, which may be in a DAG file
        checking = next(each for each in type(self).__mro__ if "check" in vars(each))
        return PollingTrigger(
            sensor=f"{checking.__module__}:{checking.__qualname__}",
            catalog_conn_id=self.catalog_conn_id,
            poll_interval=self.poke_interval,
            **self.check_arguments(),
        )

    def poke(self, context: Context) -> PokeReturnValue:
        """Check once."""
        arguments = self.check_arguments()
        result = self.check(get_catalog(self.catalog_conn_id), **arguments)
        self.log.info("Waiting for %s; result: %s", self.goal.format_map(arguments), result or "not yet")
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
        self.log.info("Result: %s", event["result"])
        return event["result"]


class LimitSensor(PollingSensor):
    """Wait until some table is past a limit, or none is.

    :param tables: ``namespace.name`` of each table. (templated)
    :param until: ``above`` or ``below``. (templated)
    """

    template_fields: Sequence[str] = (*PollingSensor.template_fields, "tables", "until")

    def __init__(self, *, tables: str | Sequence[str], until: Side | str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.until = until

    def check_arguments(self) -> dict[str, Any]:
        """Return the tables and the side; refuse an empty list."""
        if not (tables := table_list(self.tables)):
            raise AirflowFailException("tables is empty. Name at least one table.")
        if self.until not in get_args(Side):
            raise AirflowFailException(f"Expected until='above' or 'below', got {self.until!r}.")
        return {"tables": tables, "until": self.until}


def check_limit(
    measured: Mapping[str, T | None | Exception], is_past: Callable[[T], bool], what: str, *, some: bool
) -> dict[str, T] | None:
    """Return the values that end the wait, or None while it continues.

    Tables that cannot be read are ignored if the others decide the result.

    :param measured: the value of each table, None if it does not exist yet, or why it cannot be read.
    :param what: what is measured, for messages.
    :param some: wait until some table is past the limit, and return its value; otherwise until none is.
    :raises LakecdcJobError: the result depends on tables that cannot be read.
    """
    failed = {name: value for name, value in measured.items() if isinstance(value, Exception)}
    values = {name: value for name, value in measured.items() if value is not None and not isinstance(value, Exception)}
    past = {name: value for name, value in values.items() if is_past(value)}
    is_over = bool(past) if some else not past and None not in measured.values()
    if failed and (len(failed) == len(measured) or (is_over and not some)):
        errors = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failed.items())
        raise LakecdcJobError(f"{what} cannot be read. {errors}") from next(iter(failed.values()))
    return (past if some else values) if is_over else None
