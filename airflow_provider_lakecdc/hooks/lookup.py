"""Looking up Airflow connections with an error that says what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_lakecdc.exceptions import JobBadInputError

if TYPE_CHECKING:
    from airflow.sdk import Connection


def find_connection(conn_id: str, purpose: str, example: str) -> Connection:
    """The connection called ``conn_id``.

    :param purpose: what it is for, for the message.
    :param example: its JSON, for the hint.
    :raises JobBadInputError: if there is none; no retry creates it.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise _missing(conn_id, purpose, example) from error


async def afind_connection(conn_id: str, purpose: str, example: str) -> Connection:
    """The same for a trigger."""
    try:
        return await BaseHook.aget_connection(conn_id)
    except AirflowNotFoundException as error:
        raise _missing(conn_id, purpose, example) from error


def _missing(conn_id: str, purpose: str, example: str) -> JobBadInputError:
    return JobBadInputError(
        f"There is no connection {conn_id!r} {purpose}.",
        hint=f"Create it, for example as an environment variable: AIRFLOW_CONN_{conn_id.upper()}='{example}'.",
    )
