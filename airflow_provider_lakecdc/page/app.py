"""The page's app, which Airflow's API server mounts.

Airflow does not guard the routes of plugins, so each depends on :func:`may_read`. They only read: changes are requests
to Airflow's own API, sent by the user's browser with the user's rights.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, get_args

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from cachetools import TTLCache
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from airflow_provider_lakecdc.observe.addresses import link
from airflow_provider_lakecdc.page.history import HistoryFilter, Task, costs_of_lake, runs_of
from airflow_provider_lakecdc.page.ingestion import ingestion_of
from airflow_provider_lakecdc.page.lakes import Lake, lake_named, lakes, visible_lakes
from airflow_provider_lakecdc.page.lookups import Lookups, MetadataCache
from airflow_provider_lakecdc.page.rendering import STATIC, render
from airflow_provider_lakecdc.page.report import report_of, report_of_try, running_in, tries_of
from airflow_provider_lakecdc.page.tables import quarantine_of, table_of, tables_of
from airflow_provider_lakecdc.submit.failures import one_line
from lakecdc.contract.errors import InputError

log = logging.getLogger(__name__)

Dag = Literal["hourly", "nightly", "weekly"]
# names in Airflow are shorter; limits what is echoed in messages
Name = Annotated[str, Query(max_length=1000)]
FileName = Annotated[str, Path(max_length=100)]

_PATIENCE = 30.0
_MOST_PLANS, _PLAN_SECONDS = 64, 300
_HEADERS = {
    # content that escapes the templates cannot run, load or send anything
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_NOT_FOUND, _BAD_GATEWAY, _GATEWAY_TIMEOUT = 404, 502, 504

router = APIRouter()


def create_app() -> FastAPI:
    """Create the app; it reads nothing yet."""
    app = FastAPI(title="Lakehouse", openapi_url=None, docs_url=None, redoc_url=None, dependencies=[Depends(may_read)])
    # rights are never cached, and checked in threads as an auth manager may call another server
    app.state.rights = Lookups(threads=2, seconds=0, patience=_PATIENCE)
    # separate threads, so that pages do not wait for a catalog, and parts do not wait for plans
    app.state.pages = Lookups(threads=1, seconds=15, patience=_PATIENCE)
    app.state.parts = Lookups(threads=4, seconds=15, patience=_PATIENCE)
    app.state.plans = Lookups(threads=1, seconds=15, patience=_PATIENCE)
    app.state.planned = TTLCache(_MOST_PLANS, _PLAN_SECONDS)
    app.state.heads = MetadataCache()
    app.include_router(router)
    return app


def may_read(user: GetUserDep) -> None:
    """Require the right to read assets, which tables are in Airflow, and DAG runs.

    :raises HTTPException: 401 or 403.
    """
    manager = get_auth_manager()
    if not (
        manager.is_authorized_asset(method="GET", user=user)
        and manager.is_authorized_dag(method="GET", access_entity=DagAccessEntity.RUN, user=user)
    ):
        raise HTTPException(403, "The page Lakehouse needs the right to read assets and DAG runs.")


@dataclass(frozen=True)
class View:
    """What a user may see: lakes without hidden tables, and the name of the requested one (None: the first)."""

    lakes: tuple[Lake, ...]
    name: str | None

    @property
    def lake(self) -> Lake:
        """Return the requested lake.

        :raises InputError: it does not exist or is hidden.
        """
        return lake_named(self.lakes, self.name)

    @property
    def lake_if_any(self) -> Lake | None:
        """Return the requested lake; None if the user may see none at all."""
        return self.lake if self.lakes else None

    @property
    def key(self) -> Hashable:
        """Return a key that is equal for users with the same rights."""
        # the hidden tables of a lake follow from the lakes that are missing
        return tuple(lake.name for lake in self.lakes), self.name


class PageRequest:
    """A request for a page or a part of one, by default of the first lake that the user may see."""

    def __init__(self, request: Request, user: GetUserDep, lake: Name | None = None) -> None:
        self.lake = lake
        self._user = user
        self._rights: Lookups = request.app.state.rights
        self.heads: MetadataCache = request.app.state.heads
        self._parts: Lookups = request.app.state.parts
        self.plans: Lookups = request.app.state.plans
        self._planned: TTLCache[tuple[str, str], dict[str, Any]] = request.app.state.planned
        self._pages: Lookups = request.app.state.pages

    async def page(self, title: str, tab: str, parts: Mapping[str, str], **facts: Any) -> Response:
        """Render a page; the browser loads its parts later from their addresses."""

        async def content() -> str:
            view = await self._view()

            def work() -> str:
                # without a lake, the parts show the error
                lake = view.lake_if_any
                return render("page", title=title, tab=tab, lakes=view.lakes, lake=lake, parts=parts, **facts)

            return await self._pages.get(("page", view.key, title, tab, *parts.values()), work)

        return await self._answer(content(), lambda message: render("failed", title=title, message=message))

    async def part(
        self, name: str, read: Callable[[View], Mapping[str, Any]], *key: Hashable, lookups: Lookups | None = None
    ) -> Response:
        """Render a part of a page by its template; the key identifies the values, together with the user's rights."""
        known = lookups or self._parts

        async def content() -> str:
            view = await self._view()
            return await known.get((name, view.key, *key), lambda: render(name, lake=view.lake_if_any, **read(view)))

        return await self._answer(content(), lambda message: render("error", message=message))

    def planned(self, lake: Lake, dag: str) -> dict[str, Any]:
        """Return the template's values of a planned run, None without a configuration; called in the thread of plans.

        A plan takes long, is kept for a while, and is shared by all users who may see its lake.
        """
        if lake.config is None:
            return {"planned": None}
        # importing all operators is slow
        from airflow_provider_lakecdc.templates.planning import plan_run

        if (planned := self._planned.get((lake.name, dag))) is None:
            planned = {"planned": plan_run(lake.config, dag), "planned_at": datetime.now(UTC)}
            self._planned[lake.name, dag] = planned
        return planned

    async def _view(self) -> View:
        visible = await self._rights.get(self._user.get_id(), lambda: visible_lakes(self._user, lakes()))
        return View(visible, self.lake)

    async def _answer(self, content: Awaitable[str], format_error: Callable[[str], str]) -> Response:
        try:
            return HTMLResponse(await content, headers=_HEADERS)
        except Exception as error:
            # formatting a long message must not block the event loop
            return await run_in_threadpool(_error_response, error, format_error)


def _error_response(error: Exception, format_error: Callable[[str], str]) -> Response:
    if isinstance(error, TimeoutError):
        text = f"The lake did not answer within {_PATIENCE:.0f} s. It is still being read: try again."
        return HTMLResponse(format_error(text), _GATEWAY_TIMEOUT, _HEADERS)
    if isinstance(error, InputError):
        return HTMLResponse(format_error(one_line(error)), _NOT_FOUND, _HEADERS)
    log.error("Cannot render the page Lakehouse.", exc_info=error)
    return HTMLResponse(format_error(one_line(error)), _BAD_GATEWAY, _HEADERS)


PageRequestDep = Annotated[PageRequest, Depends(PageRequest)]
TaskDep = Annotated[Task, Depends(Task)]
FilterDep = Annotated[HistoryFilter, Depends(HistoryFilter)]
_MAY_READ_XCOM = [Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.XCOM))]


@router.get("/")
def index() -> Response:
    """Redirect to the list of tables."""
    return RedirectResponse("tables", headers=_HEADERS)


@router.get("/static/{name}")
def static(name: FileName) -> Response:
    """Serve a file of the pages: styles, scripts, icons."""
    if name not in {path.name for path in STATIC.iterdir()}:
        raise HTTPException(_NOT_FOUND)
    return FileResponse(STATIC / name, headers={**_HEADERS, "Cache-Control": "private, max-age=86400"})


@router.get("/tables")
async def tables(request: PageRequestDep) -> Response:
    """Serve the list of tables."""
    return await request.page("Tables", "tables", {"the tables": link("parts/tables", lake=request.lake)})


@router.get("/parts/tables")
async def tables_part(request: PageRequestDep) -> Response:
    """Serve the tables with their scores."""
    return await request.part("tables", lambda view: tables_of(view.lake, request.heads))


@router.get("/plan")
async def plan(request: PageRequestDep, dag: Dag = "nightly") -> Response:
    """Serve the plan of a governance DAG."""
    parts = {"what the tables need": link("parts/plan", lake=request.lake, dag=dag)}
    return await request.page("Plan", "plan", parts, dag=dag, dags=get_args(Dag))


@router.get("/parts/plan")
async def plan_part(request: PageRequestDep, dag: Dag = "nightly") -> Response:
    """Serve the planned work with predicted costs and reasons."""
    return await request.part("plan", lambda view: request.planned(view.lake, dag), dag, lookups=request.plans)


@router.get("/parts/tonight")
async def tonight_part(request: PageRequestDep) -> Response:
    """Serve the predicted cost of the next nightly run."""
    return await request.part("tonight", lambda view: request.planned(view.lake, "nightly"), lookups=request.plans)


@router.get("/parts/running")
async def running_part(request: PageRequestDep) -> Response:
    """Serve the tasks whose jobs run."""
    return await request.part("running", lambda view: running_in(view.lake))


@router.get("/ingestion")
async def ingestion(request: PageRequestDep) -> Response:
    """Serve the page of ingestion."""
    return await request.page("Ingestion", "ingestion", {"the ingestion": link("parts/ingestion", lake=request.lake)})


@router.get("/parts/ingestion")
async def ingestion_part(request: PageRequestDep, name: Name | None = None) -> Response:
    """Serve events and rows of all tables or of one, with throughput, lag, freshness and quarantined messages."""
    return await request.part("ingestion", lambda view: ingestion_of(view.lake, name, request.heads), name)


@router.get("/history")
async def history(request: PageRequestDep, rows: FilterDep) -> Response:
    """Serve the history of jobs."""
    given = {name: value for name, value in vars(rows).items() if value}
    parts = {"the audit": link("parts/history", lake=request.lake, **given)}
    return await request.page("History", "history", parts)


@router.get("/parts/history")
async def history_part(request: PageRequestDep, rows: FilterDep, alone: bool = False) -> Response:
    """Serve what jobs did to tables by application, with its numbers before and after.

    ``alone`` is set on a table's page, which has no filters.
    """

    def read(view: View) -> dict[str, Any]:
        return {**runs_of(view.lake, rows, request.heads), "alone": alone}

    return await request.part("history", read, rows, alone)


@router.get("/costs")
async def costs(request: PageRequestDep) -> Response:
    """Serve the costs of jobs."""
    return await request.page("Costs", "costs", {"the audit": link("parts/costs", lake=request.lake)})


@router.get("/parts/costs")
async def costs_part(request: PageRequestDep) -> Response:
    """Serve the costs of DAG runs and tables, and the savings of readers."""
    return await request.part("costs", lambda view: costs_of_lake(view.lake, request.heads))


@router.get("/report", dependencies=_MAY_READ_XCOM)
async def report(request: PageRequestDep, task: TaskDep) -> Response:
    """Serve the report of a task's job."""
    pages = {"the report": "parts/report", "the tries": "parts/tries"}
    parts = {what: link(part, lake=request.lake, **vars(task)) for what, part in pages.items()}
    return await request.page(f"Report of {task.task_id}", "history", parts)


@router.get("/parts/report", dependencies=_MAY_READ_XCOM)
async def report_part(request: PageRequestDep, task: TaskDep) -> Response:
    """Serve what a task's job did to each table, its cost and its failures."""

    def read(view: View) -> dict[str, Any]:
        return report_of(view.lakes, task) if task.try_number is None else report_of_try(view.lake, task)

    return await request.part("report", read, task)


@router.get("/parts/tries", dependencies=_MAY_READ_XCOM)
async def tries_part(request: PageRequestDep, task: TaskDep) -> Response:
    """Serve the tries of a task that started Spark, each with its report."""

    def read(view: View) -> dict[str, Any]:
        return tries_of(view.lakes if view.name is None else [view.lake], task)

    return await request.part("tries", read, task)


@router.get("/table")
async def table(request: PageRequestDep, name: Name) -> Response:
    """Serve the page of a table."""
    pages = {"the table": "parts/table", "the ingestion": "parts/ingestion", "the quarantine": "parts/quarantine"}
    parts = {what: link(part, lake=request.lake, name=name) for what, part in pages.items()}
    parts["the audit"] = link("parts/history", lake=request.lake, name=name, alone="true")
    return await request.page(name, "", parts)


@router.get("/parts/table")
async def table_part(request: PageRequestDep, name: Name) -> Response:
    """Serve a table's score, files, deletes and snapshots."""
    return await request.part("table", lambda view: table_of(view.lake, name, request.heads), name)


@router.get("/parts/quarantine")
async def quarantine_part(request: PageRequestDep, name: Name) -> Response:
    """Serve a table's quarantined messages, by rule."""
    return await request.part("quarantine", lambda view: quarantine_of(view.lake, name, request.heads), name)
