"""Which catalog and which tables a command is about."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.governance.discovery import Wanted, find
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from lakecdc.contract.errors import InputError, SpecError

if TYPE_CHECKING:
    from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
    from airflow_provider_lakecdc.templates.config import LakeConfig


@dataclass(frozen=True)
class Selection:
    """Tables of a catalog.

    :param tables: ``namespace.name`` of each, whether it exists or not.
    """

    catalog: CatalogConnection
    tables: list[str]


def configuration(asked: Namespace) -> LakeConfig | None:
    """The configuration that a command is about; None if it names a catalog instead, or nobody has set one.

    :raises SpecError: it is wrong, or both are named.
    """
    catalog = getattr(asked, "catalog", None)
    if asked.config and catalog:
        raise SpecError("Both --config and --catalog are given.", hint="The configuration names its catalog itself.")
    if catalog or not (asked.config or settings.config_file()):
        return None
    # imports all operators, which takes a while
    from airflow_provider_lakecdc.templates.config import load_config

    return load_config(asked.config)


def catalog_of(asked: Namespace, config: LakeConfig | None) -> CatalogConnection:
    """The catalog of the configuration, else the one that is named, else ``[lakecdc] catalog_conn_id``."""
    return get_catalog(config.catalog if config else asked.catalog or settings.catalog_conn_id())


def selected(asked: Namespace) -> Selection:
    """Find the tables: those that are named, else those of the configuration, else all of the catalog that is named.

    :raises InputError: there are none.
    :raises SpecError: nobody has said which.
    """
    config = configuration(asked)
    if config is None and not asked.tables and not asked.catalog:
        raise SpecError(
            "Nobody has said which tables.",
            hint="Name tables, a catalog by --catalog, or a configuration by --config, the environment variable "
            f"{settings.CONFIG_FILE_VARIABLE} or [lakecdc] config_file.",
        )
    wanted = config.wanted if config and not asked.tables else Wanted(tuple(asked.tables) or ("*",))
    catalog = catalog_of(asked, config)
    tables = list(dict.fromkeys(find(catalog, wanted).tables))
    if not tables:
        entries = ", ".join((*wanted.tables, *wanted.fed))
        raise InputError(
            f"No table of the catalog {catalog.name!r} is found by {entries}.",
            hint="A catalog in a database lists what was made under its own name: see catalog_name in the connection's "
            "extra.",
        )
    return Selection(catalog, tables)
