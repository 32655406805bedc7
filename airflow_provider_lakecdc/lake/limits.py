"""Limits that sensors wait for: some table is past the limit, or none is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeVar

from airflow_provider_lakecdc.exceptions import LakecdcJobError

log = logging.getLogger(__name__)

#: the side of a limit that is waited for
Side = Literal["above", "below"]
#: how many tables must be past the limit
Until = Literal["some", "none"]

T = TypeVar("T")


def check_limit(
    tables: Sequence[str], read: Callable[[str], T | None], is_past: Callable[[T], bool], until: Until, what: str
) -> dict[str, T] | None:
    """Measure all tables once, see :func:`evaluate_limit`.

    Tables that cannot be read are ignored if the others decide the result.

    :param tables: ``namespace.name`` of each.
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
