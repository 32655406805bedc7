"""The lakes on the page: from the configurations, else the catalog of ``[lakecdc] catalog_conn_id``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.governance.discovery import TableSelection, select_tables
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from lakecdc.contract.errors import InputError
from lakecdc.metadata.names import parked_of, quarantine_of, target_of
from lakecdc.metadata.policy import matching

if TYPE_CHECKING:
    from airflow_provider_lakecdc.templates.config import LakeConfig


@dataclass(frozen=True)
class Lake:
    """A catalog and its visible tables.

    :param name: unique name on the page.
    :param config: the configuration of its maintained tables; None shows the whole catalog.
    :param hidden: configurations of the same catalog that the user may not see.
    """

    name: str
    conn_id: str
    config: LakeConfig | None = None
    hidden: tuple[LakeConfig, ...] = ()

    @property
    def dags(self) -> list[str]:
        """Return the ids of its configuration's DAGs."""
        from airflow_provider_lakecdc.templates.schedules import DAGS, REPLAY

        return [f"{self.config.dag_id_prefix}_{kind}" for kind in (*DAGS, REPLAY)] if self.config else []

    def shows(self, table: str) -> bool:
        """Check whether a table is visible, which it is not if only hidden configurations have it or its target."""
        others = any(_hides(config, table) for config in self.hidden)
        return not others or (self.config is not None and bool(matching(_entries(self.config), [target_of(table)])))

    def check_shown(self, table: str) -> None:
        """Reject a hidden table as if it did not exist."""
        if not self.shows(table):
            raise no_such_table(table)

    @property
    def catalog(self) -> CatalogConnection:
        """Return the catalog with the current settings of its connection."""
        return get_catalog(self.conn_id)

    @property
    def tables(self) -> list[str]:
        """Return the visible tables; the catalog is listed only if there are patterns."""
        selection = self.config.selection if self.config else TableSelection(("*",))
        return list(dict.fromkeys(select_tables(self.catalog, selection).tables))

    @property
    def replay_dag(self) -> str | None:
        """Return the id of the DAG that replays its quarantine; None without a source."""
        from airflow_provider_lakecdc.templates.schedules import REPLAY

        return f"{self.config.dag_id_prefix}_{REPLAY}" if self.config and self.config.source else None

    def quarantine_of(self, table: str) -> str:
        """Return the quarantine of a table."""
        options = self.config.job_options("ingest", "ingest") if self.config else {}
        return quarantine_of(table, options.get("quarantine_table"))


def no_such_table(table: str) -> InputError:
    """Return the error for a table that does not exist or is hidden."""
    return InputError(f"Table {table!r} does not exist.", hint="It may have been dropped or renamed.")


def _hides(config: LakeConfig, table: str) -> bool:
    # catalogs may ignore the case of names
    spelled = target_of(table.casefold())
    entries = _entries(config)
    excluded = [entry[1:] for entry in entries if entry.startswith("!")]
    named = [entry.casefold() for entry in entries if not entry.startswith("!")]
    return bool(matching(named, [spelled])) and not matching(excluded, [target_of(table)])


def _entries(config: LakeConfig) -> list[str]:
    """Return names and patterns of a configuration's tables, and of their side tables."""
    entries = [*config.selection.tables, *config.selection.fed, *config.fed_tables]
    return [*entries, *(beside for entry in entries if not entry.startswith("!") for beside in _beside(config, entry))]


def _beside(config: LakeConfig, entry: str) -> Iterator[str]:
    """Yield the side tables that a namespace's targets share."""
    table = entry if "." in entry else "*.*"
    yield parked_of(table)
    yield from (quarantine_of(table, named) for named in (None, *config.quarantine_names))


def lakes() -> list[Lake]:
    """Load all lakes, that of ``[lakecdc] config_file`` first.

    :raises SpecError: a configuration is invalid.
    """
    # importing all operators is slow
    from airflow_provider_lakecdc.templates.config import load_config

    named = settings.config_file()
    configs = [load_config(path) for path in ([named] if named else []) + settings.page_config_files()]
    if not configs:
        return [Lake(settings.catalog_conn_id(), settings.catalog_conn_id())]
    shared = Counter(config.catalog for config in configs)
    return [
        Lake(c.catalog if shared[c.catalog] == 1 else f"{c.catalog} ({c.dag_id_prefix})", c.catalog, c) for c in configs
    ]


def lake_named(known: Sequence[Lake], name: str | None) -> Lake:
    """Return a lake by its name or that of its connection, which is all that a task knows; the first without one.

    :raises InputError: the lake does not exist, or no lake is visible.
    """
    if not known:
        raise InputError("You may not see any lake.", hint="Request the right to read a DAG of its configuration.")
    matches = [lake for lake in known if lake.name == name] or [lake for lake in known if lake.conn_id == name]
    lake = known[0] if name is None else next(iter(matches), None)
    if lake is None:
        names = ", ".join(each.name for each in known)
        raise InputError(f"Lake {name!r} does not exist.", hint=f"Existing lakes: {names}.")
    return lake


def visible_lakes(user: BaseUser, lakes: Iterable[Lake]) -> tuple[Lake, ...]:
    """Return the lakes that a user may see, with the hidden configurations of shared catalogs.

    Lakes without a configuration have no DAGs, and all users of the page see them.
    """
    known = list(lakes)
    teams = _teams([dag for lake in known for dag in lake.dags])
    visible = [lake for lake in known if not lake.dags or _may_read_any(user, lake.dags, teams)]
    hidden = [lake for lake in known if lake not in visible]
    return tuple(
        replace(lake, hidden=tuple(each.config for each in hidden if each.config and each.conn_id == lake.conn_id))
        for lake in visible
    )


def _teams(dags: list[str]) -> dict[str, str | None]:
    """Return the teams of the DAGs that are deployed."""
    with create_session(scoped=False) as session:
        deployed = session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.in_(dags))).all()
        return {**dict.fromkeys(deployed), **DagModel.get_dag_id_to_team_name_mapping(dags, session=session)}


def _may_read_any(user: BaseUser, dags: list[str], teams: Mapping[str, str | None]) -> bool:
    # a DAG that is not deployed has no team and would be readable by all
    deployed = [dag for dag in dags if dag in teams] or dags
    manager = get_auth_manager()
    return any(
        # as Airflow's own API checks a DAG
        manager.is_authorized_dag(method="GET", details=DagDetails(id=dag, team_name=teams.get(dag)), user=user)
        for dag in deployed
    )
