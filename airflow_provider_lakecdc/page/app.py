"""The page's app, which Airflow's API server mounts.

Airflow guards no route of a plugin, so each of these depends on :func:`may_read`. They only read: what changes anything
is asked of Airflow's own API, by the person's browser and with the person's rights.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from typing import Annotated, Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from airflow_provider_lakecdc.failures import one_line
from airflow_provider_lakecdc.page.lakes import Lake, lake_named, lakes
from airflow_provider_lakecdc.page.lookups import Heads, Lookups
from airflow_provider_lakecdc.page.rendering import STATIC, link, render
from airflow_provider_lakecdc.page.tables import tables_of
from lakecdc.contract.errors import InputError

log = logging.getLogger(__name__)

_PATIENCE = 30.0
_HEADERS = {
    # nothing of a table's name or of a message can run, load or send anything, whatever escapes the templates
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NOT_FOUND, _BAD_GATEWAY, _GATEWAY_TIMEOUT = 404, 502, 504

router = APIRouter()


def create_app() -> FastAPI:
    """Make the app, with nothing read yet."""
    app = FastAPI(title="Lakehouse", openapi_url=None, docs_url=None, redoc_url=None, dependencies=[Depends(may_read)])
    app.state.lookups = Lookups(threads=4, seconds=15, patience=_PATIENCE)
    app.state.heads = Heads()
    app.include_router(router)
    return app


def may_read(user: GetUserDep) -> None:
    """Refuse who may not read assets, which tables are to Airflow, and DAG runs, of which the page tells.

    :raises HTTPException: 401 or 403.
    """
    manager = get_auth_manager()
    if not (
        manager.is_authorized_asset(method="GET", user=user)
        and manager.is_authorized_dag(method="GET", access_entity=DagAccessEntity.RUN, user=user)
    ):
        raise HTTPException(403, "The page Lakehouse needs the right to read assets and DAG runs.")


class Asked:
    """A request for a page, or for a part of one.

    :param lake: name of the lake that it is about; default: the first.
    """

    def __init__(self, request: Request, lake: str | None = None) -> None:
        self.lake = lake
        self.heads: Heads = request.app.state.heads
        self._lookups: Lookups = request.app.state.lookups

    async def page(self, title: str, tab: str, parts: Mapping[str, str], **facts: Any) -> Response:
        """A page whose parts the browser asks for, so that it is there at once.

        :param tab: which of the tabs it belongs to.
        :param parts: address of each part, by what is read there.
        """

        def work() -> str:
            known = lakes()
            lake = lake_named(known, self.lake)
            return render("page", title=title, tab=tab, lakes=known, lake=lake, parts=parts, **facts)

        key = ("page", self.lake, title, tab, *parts)
        return await self._answer(key, work, lambda told: render("failed", title=title, told=told))

    async def part(self, name: str, read: Callable[[Lake], Mapping[str, Any]], *key: Hashable) -> Response:
        """A part of a page.

        :param name: of its template.
        :param read: finds what the template tells.
        :param key: whatever the answer depends on beside the lake.
        """

        def work() -> str:
            lake = lake_named(lakes(), self.lake)
            return render(name, lake=lake, **read(lake))

        return await self._answer((name, self.lake, *key), work, lambda told: render("error", told=told))

    async def _answer(self, key: Hashable, work: Callable[[], str], tell: Callable[[str], str]) -> Response:
        try:
            return HTMLResponse(await self._lookups.get(key, work), headers=_HEADERS)
        except InputError as error:
            return HTMLResponse(tell(one_line(error)), _NOT_FOUND, _HEADERS)
        except TimeoutError:
            told = f"The lake has not answered within {_PATIENCE:.0f} s. It is still being read: try again."
            return HTMLResponse(tell(told), _GATEWAY_TIMEOUT, _HEADERS)
        except Exception as error:
            log.exception("The page Lakehouse could not be made.")
            return HTMLResponse(tell(one_line(error)), _BAD_GATEWAY, _HEADERS)


AskedDep = Annotated[Asked, Depends(Asked)]


@router.get("/")
def index() -> Response:
    """Go to the list of tables."""
    return RedirectResponse("tables", headers=_HEADERS)


@router.get("/static/{name}")
def static(name: str) -> Response:
    """A file of the pages: styles, scripts, the icon."""
    if name not in {path.name for path in STATIC.iterdir()}:
        raise HTTPException(_NOT_FOUND)
    return FileResponse(STATIC / name, headers={**_HEADERS, "Cache-Control": "private, max-age=86400"})


@router.get("/tables")
async def tables(asked: AskedDep) -> Response:
    """The list of tables."""
    return await asked.page("Tables", "tables", {"the tables": link("parts/tables", lake=asked.lake)})


@router.get("/parts/tables")
async def tables_part(asked: AskedDep) -> Response:
    """The tables with their scores."""
    return await asked.part("tables", lambda lake: tables_of(lake, asked.heads))
