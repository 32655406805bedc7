"""The lakes that the page shows: those of the configurations, or else the catalog of ``[lakecdc] catalog_conn_id``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.governance.discovery import Wanted, find
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from lakecdc.contract.errors import InputError
from lakecdc.metadata.names import parked_of, quarantine_of, target_of
from lakecdc.metadata.policy import matching

if TYPE_CHECKING:
    from airflow_provider_lakecdc.templates.config import LakeConfig


@dataclass(frozen=True)
class Lake:
    """A catalog, and which of its tables are shown.

    :param name: what the page calls it, different from all others'.
    :param conn_id: connection of type ``iceberg``.
    :param config: says which tables are maintained, and how; None shows all of the catalog.
    :param hidden: configurations of the same catalog that whoever asks may not see.
    """

    name: str
    conn_id: str
    config: LakeConfig | None = None
    hidden: tuple[LakeConfig, ...] = ()

    @property
    def dags(self) -> list[str]:
        """Ids of the DAGs that its configuration makes."""
        from airflow_provider_lakecdc.templates.schedules import DAGS, REPLAY

        return [f"{self.config.dag_id_prefix}_{kind}" for kind in (*DAGS, REPLAY)] if self.config else []

    def shows(self, table: str) -> bool:
        """Tell whether a table is not one that only hidden configurations have; a side table goes with its target."""
        others = any(_hides(config, table) for config in self.hidden)
        return not others or (self.config is not None and bool(matching(_entries(self.config), [target_of(table)])))

    def check_shown(self, table: str) -> None:
        """Refuse a table that whoever asks may not see, as one that is not there.

        :raises InputError: it is hidden.
        """
        if not self.shows(table):
            raise no_such_table(table)

    @property
    def catalog(self) -> CatalogConnection:
        """The catalog, as its connection is now."""
        return get_catalog(self.conn_id)

    @property
    def tables(self) -> list[str]:
        """Tables that are shown; the catalog is asked only where there are patterns."""
        return list(dict.fromkeys(find(self.catalog, self.config.wanted if self.config else Wanted(("*",))).tables))

    @property
    def replay_dag(self) -> str | None:
        """Id of the DAG that enters its quarantined messages again; None if nothing feeds the tables."""
        from airflow_provider_lakecdc.templates.schedules import REPLAY

        return f"{self.config.dag_id_prefix}_{REPLAY}" if self.config and self.config.source else None

    def quarantine_of(self, table: str) -> str:
        """The quarantine of a table."""
        options = self.config.job_options("ingest", "ingest") if self.config else {}
        return quarantine_of(table, options.get("quarantine_table"))


def no_such_table(table: str) -> InputError:
    """Return the error of a table that does not exist, or may not be seen."""
    return InputError(f"There is no table {table!r}.", hint="It may have been dropped or renamed.")


def _hides(config: LakeConfig, table: str) -> bool:
    # catalogs may find a table by another spelling of its name
    spelled = target_of(table.casefold())
    entries = _entries(config)
    left_out = [entry[1:] for entry in entries if entry.startswith("!")]
    named = [entry.casefold() for entry in entries if not entry.startswith("!")]
    return bool(matching(named, [spelled])) and not matching(left_out, [target_of(table)])


def _entries(config: LakeConfig) -> list[str]:
    """Return names and patterns of all tables that a configuration feeds or maintains, and of quarantines."""
    entries = [*config.wanted.tables, *config.wanted.fed, *config.fed_tables]
    return [*entries, *(beside for entry in entries if not entry.startswith("!") for beside in _beside(config, entry))]


def _beside(config: LakeConfig, entry: str) -> Iterator[str]:
    """Yield the tables that a namespace has for all of its targets."""
    table = entry if "." in entry else "*.*"
    yield parked_of(table)
    yield from (quarantine_of(table, named) for named in (None, *config.quarantine_names))


def lakes() -> list[Lake]:
    """All of them, the one of ``[lakecdc] config_file`` first.

    :raises SpecError: a configuration is wrong.
    """
    # imports all operators, which takes a while
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
    """One of the lakes; without a name the first.

    :param name: the lake's, or its connection's, which is all that a task knows.
    :raises InputError: there is none of that name, or none at all.
    """
    if not known:
        raise InputError(
            "There is no lake that you may see.", hint="Ask for the right to read a DAG of its configuration."
        )
    named = [lake for lake in known if lake.name == name] or [lake for lake in known if lake.conn_id == name]
    found = known[0] if name is None else next(iter(named), None)
    if found is None:
        raise InputError(f"There is no lake {name!r}.", hint=f"There are {', '.join(lake.name for lake in known)}.")
    return found
