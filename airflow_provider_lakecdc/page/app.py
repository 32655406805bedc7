"""The page's app, which Airflow's API server mounts.

Airflow guards no route of a plugin, so each of these depends on :func:`may_read`. They only read: what changes anything
is asked of Airflow's own API, by the person's browser and with the person's rights.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import APIRouter, Depends, FastAPI, HTTPException, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from airflow_provider_lakecdc.page.addresses import link
from airflow_provider_lakecdc.page.history import runs_of
from airflow_provider_lakecdc.page.lakes import Lake, lake_named, lakes
from airflow_provider_lakecdc.page.lookups import Heads, Lookups
from airflow_provider_lakecdc.page.plan import plan_of
from airflow_provider_lakecdc.page.quarantine import quarantine_of
from airflow_provider_lakecdc.page.rendering import STATIC, render
from airflow_provider_lakecdc.page.report import report_of, report_of_try, tries_of
from airflow_provider_lakecdc.page.rights import seen_by
from airflow_provider_lakecdc.page.table import table_of
from airflow_provider_lakecdc.page.tables import tables_of
from airflow_provider_lakecdc.page.task import Task
from airflow_provider_lakecdc.submit.failures import one_line
from lakecdc.contract.errors import InputError

log = logging.getLogger(__name__)

Dag = Literal["hourly", "nightly", "weekly"]
# nothing has a longer name, and whatever a browser sends comes back in messages
Name = Annotated[str, Query(max_length=1000)]
FileName = Annotated[str, Path(max_length=100)]

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
    # rights may change at any moment, and are asked for in threads because an auth manager may ask another server
    app.state.rights = Lookups(threads=2, seconds=0, patience=_PATIENCE)
    # what needs no catalog does not wait for one, and nothing else waits for a plan of many tables
    app.state.pages = Lookups(threads=1, seconds=15, patience=_PATIENCE)
    app.state.parts = Lookups(threads=4, seconds=15, patience=_PATIENCE)
    app.state.plans = Lookups(threads=1, seconds=300, patience=_PATIENCE)
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


@dataclass(frozen=True)
class Seen:
    """What whoever asks may see.

    :param lakes: without the tables that are hidden.
    :param name: of the lake that is asked for; None is the first.
    """

    lakes: tuple[Lake, ...]
    name: str | None

    @property
    def lake(self) -> Lake:
        """The lake that is asked for.

        :raises InputError: there is none of that name, or it may not be seen.
        """
        return lake_named(self.lakes, self.name)

    @property
    def lake_if_any(self) -> Lake | None:
        """The same; None if there is no lake at all that may be seen."""
        return self.lake if self.lakes else None

    @property
    def key(self) -> Hashable:
        """The same for all who may see the same."""
        # what is hidden of a lake are the tables of those that are not among them
        return tuple(lake.name for lake in self.lakes), self.name


class Asked:
    """A request for a page, or for a part of one.

    :param lake: name of the lake that it is about; default: the first that whoever asks may see.
    """

    def __init__(self, request: Request, user: GetUserDep, lake: Name | None = None) -> None:
        self.lake = lake
        self._user = user
        self._rights: Lookups = request.app.state.rights
        self.heads: Heads = request.app.state.heads
        self.parts: Lookups = request.app.state.parts
        self.plans: Lookups = request.app.state.plans
        self._pages: Lookups = request.app.state.pages

    async def page(self, title: str, tab: str, parts: Mapping[str, str], **facts: Any) -> Response:
        """A page whose parts the browser asks for, so that it is there at once.

        :param tab: which of the tabs it belongs to.
        :param parts: address of each part, by what is read there.
        """

        async def found() -> str:
            seen = await self._seen()

            def work() -> str:
                # where there is none, the parts say so
                lake = seen.lake_if_any
                return render("page", title=title, tab=tab, lakes=seen.lakes, lake=lake, parts=parts, **facts)

            return await self._pages.get(("page", seen.key, title, tab, *parts.values()), work)

        return await self._answer(found(), lambda told: render("failed", title=title, told=told))

    async def part(
        self, lookups: Lookups, name: str, read: Callable[[Seen], Mapping[str, Any]], *key: Hashable
    ) -> Response:
        """A part of a page.

        :param lookups: where it is looked for.
        :param name: of its template.
        :param read: finds what the template tells.
        :param key: whatever the answer depends on beside what whoever asks may see.
        """

        async def found() -> str:
            seen = await self._seen()
            return await lookups.get((name, seen.key, *key), lambda: render(name, lake=seen.lake_if_any, **read(seen)))

        return await self._answer(found(), lambda told: render("error", told=told))

    async def _seen(self) -> Seen:
        found = await self._rights.get(self._user.get_id(), lambda: seen_by(self._user, lakes()))
        return Seen(found, self.lake)

    async def _answer(self, found: Awaitable[str], tell: Callable[[str], str]) -> Response:
        try:
            return HTMLResponse(await found, headers=_HEADERS)
        except Exception as error:
            # a message may be long and tell what a browser has sent: the event loop does not wait for it
            return await run_in_threadpool(_told, error, tell)


def _told(error: Exception, tell: Callable[[str], str]) -> Response:
    """Answer with an error."""
    if isinstance(error, TimeoutError):
        text = f"The lake has not answered within {_PATIENCE:.0f} s. It is still being read: try again."
        return HTMLResponse(tell(text), _GATEWAY_TIMEOUT, _HEADERS)
    if isinstance(error, InputError):
        return HTMLResponse(tell(one_line(error)), _NOT_FOUND, _HEADERS)
    log.error("The page Lakehouse could not be made.", exc_info=error)
    return HTMLResponse(tell(one_line(error)), _BAD_GATEWAY, _HEADERS)


AskedDep = Annotated[Asked, Depends(Asked)]
TaskDep = Annotated[Task, Depends(Task)]
_MAY_READ_XCOM = [Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.XCOM))]


@router.get("/")
def index() -> Response:
    """Go to the list of tables."""
    return RedirectResponse("tables", headers=_HEADERS)


@router.get("/static/{name}")
def static(name: FileName) -> Response:
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
    return await asked.part(asked.parts, "tables", lambda seen: tables_of(seen.lake, asked.heads))


@router.get("/plan")
async def plan(asked: AskedDep, dag: Dag = "nightly") -> Response:
    """The plan of a governance DAG."""
    parts = {"what the tables need": link("parts/plan", lake=asked.lake, dag=dag)}
    return await asked.page("Plan", "plan", parts, dag=dag, dags=get_args(Dag))


@router.get("/parts/plan")
async def plan_part(asked: AskedDep, dag: Dag = "nightly") -> Response:
    """What would be done, what that is predicted to take, and why."""
    return await asked.part(asked.plans, "plan", lambda seen: plan_of(seen.lake, dag), dag)


@router.get("/history")
async def history(asked: AskedDep) -> Response:
    """What jobs have done."""
    return await asked.page("History", "history", {"the audit": link("parts/history", lake=asked.lake)})


@router.get("/parts/history")
async def history_part(asked: AskedDep, name: Name | None = None) -> Response:
    """What jobs have done to all tables or to one, with its numbers before and after."""
    return await asked.part(asked.parts, "history", lambda seen: runs_of(seen.lake, name, asked.heads), name)


@router.get("/report", dependencies=_MAY_READ_XCOM)
async def report(asked: AskedDep, task: TaskDep) -> Response:
    """The report of a task's job."""
    pages = {"the report": "parts/report", "the tries": "parts/tries"}
    parts = {what: link(part, lake=asked.lake, **vars(task)) for what, part in pages.items()}
    return await asked.page(f"Report of {task.task_id}", "history", parts)


@router.get("/parts/report", dependencies=_MAY_READ_XCOM)
async def report_part(asked: AskedDep, task: TaskDep) -> Response:
    """What a task's job has done to each table, what that took, and what has failed."""

    def read(seen: Seen) -> dict[str, Any]:
        return report_of(seen.lakes, task) if task.try_number is None else report_of_try(seen.lake, task)

    return await asked.part(asked.parts, "report", read, task)


@router.get("/parts/tries", dependencies=_MAY_READ_XCOM)
async def tries_part(asked: AskedDep, task: TaskDep) -> Response:
    """The tries of a task that have started Spark, each with its report."""

    def read(seen: Seen) -> dict[str, Any]:
        return tries_of(seen.lakes if seen.name is None else [seen.lake], task)

    return await asked.part(asked.parts, "tries", read, task)


@router.get("/table")
async def table(asked: AskedDep, name: Name) -> Response:
    """One table."""
    pages = {"the table": "parts/table", "the quarantine": "parts/quarantine", "the audit": "parts/history"}
    return await asked.page(name, "", {what: link(part, lake=asked.lake, name=name) for what, part in pages.items()})


@router.get("/parts/table")
async def table_part(asked: AskedDep, name: Name) -> Response:
    """A table's score, files, deletes and snapshots."""
    return await asked.part(asked.parts, "table", lambda seen: table_of(seen.lake, name, asked.heads), name)


@router.get("/parts/quarantine")
async def quarantine_part(asked: AskedDep, name: Name) -> Response:
    """A table's messages in quarantine, by rule."""
    return await asked.part(asked.parts, "quarantine", lambda seen: quarantine_of(seen.lake, name, asked.heads), name)
