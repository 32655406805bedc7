"""Lookup of Airflow connections, with errors that say what is missing."""

from __future__ import annotations

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_lakecdc.exceptions import JobBadInputError


def find_connection(conn_id: str, purpose: str, example: str) -> Connection:
    """Look up a connection.

    :param purpose: its purpose, for the message.
    :param example: a JSON example, for the hint.
    :raises JobBadInputError: it does not exist.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise _missing(conn_id, purpose, example) from error


async def afind_connection(conn_id: str, purpose: str, example: str) -> Connection:
    """Do the same as :func:`find_connection` in a trigger."""
    try:
        return await BaseHook.aget_connection(conn_id)
    except AirflowNotFoundException as error:
        raise _missing(conn_id, purpose, example) from error


def _missing(conn_id: str, purpose: str, example: str) -> JobBadInputError:
    return JobBadInputError(
        f"Connection {conn_id!r} {purpose} does not exist.",
        hint=f"Create it, such as by an environment variable: AIRFLOW_CONN_{conn_id.upper()}='{example}'.",
    )
