"""Addresses of the pages, all relative, so that they work under any sub-path."""

from __future__ import annotations

from urllib.parse import urlencode

#: where the API server mounts the app, without a leading slash, as Airflow may run below a sub-path
PREFIX = "lakehouse"


def link(page: str, **arguments: str | int | None) -> str:
    """Return the address of a page, relative to the other pages; query parameters that are None are omitted."""
    query = urlencode({name: value for name, value in arguments.items() if value is not None})
    return f"{page}?{query}" if query else page


def link_from_airflow(page: str, **arguments: str | int | None) -> str:
    """Return the address of a page, relative to Airflow's own page; see :func:`link`."""
    return f"{PREFIX}/{link(page, **arguments)}"
