"""What sensors wait for: that some table of several is past a limit, or that none is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from airflow_provider_lakecdc.exceptions import LakecdcJobError

log = logging.getLogger(__name__)

#: how many tables are to be past a limit
Until = Literal["some", "none"]

T = TypeVar("T")


def look_at(
    tables: Sequence[str], read: Callable[[str], T | None], is_past: Callable[[T], bool], until: Until, what: str
) -> dict[str, T] | None:
    """Look at all tables once; see :func:`waited_for`.

    A table that cannot be read leaves it to the others as long as these tell how the wait goes on.

    :param tables: ``namespace.name`` of each.
    :param read: the measured value of a table; None if there is no such table yet.
    :param what: is measured, for messages.
    :raises LakecdcJobError: if it is left to tables that cannot be read.
    """
    values: dict[str, T | None] = {}
    failed: dict[str, Exception] = {}
    for name in tables:
        try:
            values[name] = read(name)
        except Exception as error:
            log.warning("%s cannot be read", name, exc_info=error)
            failed[name] = error
    found = waited_for(values, is_past, until)
    if failed and (not values or (until == "none" and found is not None)):
        told = "; ".join(f"{name}: {type(error).__name__}: {error}" for name, error in failed.items())
        raise LakecdcJobError(f"{what} cannot be read. {told}") from next(iter(failed.values()))
    return found


def waited_for(values: Mapping[str, T | None], is_past: Callable[[T], bool], until: Until) -> dict[str, T] | None:
    """Tell whether the wait is over.

    :param values: by table; None for a table that does not exist, which is on neither side of the limit.
    :return: for ``some`` the values of the tables past the limit, for ``none`` those of all tables; None while there
        is more to wait for.
    """
    past = {name: value for name, value in values.items() if value is not None and is_past(value)}
    if until == "some":
        return past or None
    if past or None in values.values():
        return None
    return {name: value for name, value in values.items() if value is not None}
