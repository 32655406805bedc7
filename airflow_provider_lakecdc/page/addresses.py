"""Where the pages are; all addresses are relative, so that they hold under any sub-path."""

from __future__ import annotations

from urllib.parse import urlencode

#: where the API server mounts the app, without a slash in front: Airflow's own page is at the end of any sub-path
PREFIX = "lakehouse"


def link(page: str, **arguments: str | int | None) -> str:
    """The address of a page as the others see it; all are in one folder.

    :param arguments: what it is asked; those that are None are left out.
    """
    asked = urlencode({name: value for name, value in arguments.items() if value is not None})
    return f"{page}?{asked}" if asked else page


def link_from_airflow(page: str, **arguments: str | int | None) -> str:
    """The address of a page as Airflow's own page sees it.

    :param arguments: as for :func:`link`.
    """
    return f"{PREFIX}/{link(page, **arguments)}"
