"""The base of all triggers that poll a catalog's tables, and limits that they wait for."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, TypeVar

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, aget_catalog

log = logging.getLogger(__name__)
#: the side of a limit that is waited for
Side = Literal["above", "below"]
#: how many tables must be past the limit
Until = Literal["some", "none"]
T = TypeVar("T")


@dataclass(kw_only=True, eq=False, repr=False)
class PollingTrigger(BaseTrigger):
    """Check a catalog's tables repeatedly; fire when a check returns a result or fails.

    Only the fields are serialized, as JSON; the connection is looked up before every check, so that renewed credentials
    take effect.

    :param catalog_conn_id: connection of type ``iceberg``.
    :param poll_interval: seconds between two checks.
    """

    #: key of the result in the event
    event_key: ClassVar[str]
    #: the awaited state, for the log; formatted with the fields
    goal: ClassVar[str]

    catalog_conn_id: str
    poll_interval: float = 60.0

    def __post_init__(self) -> None:
        super().__init__()

    @abstractmethod
    def check(self, catalog: CatalogConnection) -> Any | None:
        """Check once; runs in a thread, as pyiceberg blocks.

        :return: the result as JSON; None to keep waiting.
        :raises LakecdcJobError: the result depends on a table that cannot be read.
        """

    async def check_in_thread(self, catalog: CatalogConnection) -> Any | None:
        """Check once in a thread; subclasses that need further connections look them up here."""
        return await asyncio.to_thread(self.check, catalog)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and its arguments, all JSON."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return f"{type(self).__module__}.{type(self).__qualname__}", own

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll until there is a result.

        An error ends the wait: the task fails with it, and its retries decide whether to wait again.
        """
        try:
            yield TriggerEvent({"status": "reached", self.event_key: await self._wait()})
        except Exception as error:
            yield TriggerEvent({"status": "error", "message": f"{type(error).__name__}: {error}"})

    async def _wait(self) -> Any:
        while True:
            catalog = await aget_catalog(self.catalog_conn_id)
            result = await self.check_in_thread(catalog)
            if result is not None:
                return result
            await asyncio.sleep(self.poll_interval)


def check_limit(
    tables: Sequence[str], read: Callable[[str], T | None], is_past: Callable[[T], bool], until: Until, what: str
) -> dict[str, T] | None:
    """Measure all tables once, see :func:`evaluate_limit`.

    Tables that cannot be read are ignored if the others decide the result.

    :param read: returns a table's value, or None if the table does not exist yet.
    :param what: what is measured, for messages.
    :raises LakecdcJobError: the result depends on tables that cannot be read.
    """
    values: dict[str, T | None] = {}
    failed: dict[str, Exception] = {}
    for name in tables:
        try:
            values[name] = read(name)
        except Exception as error:
            log.warning("Cannot read %s", name, exc_info=error)
            failed[name] = error
    result = evaluate_limit(values, is_past, until)
    if failed and (not values or (until == "none" and result is not None)):
        errors = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failed.items())
        raise LakecdcJobError(f"{what} cannot be read. {errors}") from next(iter(failed.values()))
    return result


def evaluate_limit(values: Mapping[str, T | None], is_past: Callable[[T], bool], until: Until) -> dict[str, T] | None:
    """Return the values that end the wait, or None while it continues.

    :param values: by table; None for a table that does not exist, which is on neither side of the limit.
    :return: for ``some`` the values of tables past the limit, for ``none`` those of all tables.
    """
    past = {name: value for name, value in values.items() if value is not None and is_past(value)}
    if until == "some":
        return past or None
    if past or None in values.values():
        return None
    return {name: value for name, value in values.items() if value is not None}
