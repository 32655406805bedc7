"""The catalog and the tables that a command works on."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from airflow_provider_lakecdc import settings
from airflow_provider_lakecdc.governance.discovery import TableSelection, select_tables
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection, get_catalog
from lakecdc.contract.errors import InputError, SpecError

if TYPE_CHECKING:
    from airflow_provider_lakecdc.templates.config import LakeConfig


def configuration(args: Namespace) -> LakeConfig | None:
    """Load the command's configuration; None if it names a catalog instead, or no configuration is set.

    :raises SpecError: the configuration is invalid, or both are given.
    """
    catalog = getattr(args, "catalog", None)
    if args.config and catalog:
        raise SpecError("Both --config and --catalog are given.", hint="Remove --catalog; the configuration names one.")
    if catalog or not (args.config or settings.config_file()):
        return None
    # importing all operators is slow
    from airflow_provider_lakecdc.templates.config import load_config

    return load_config(args.config)


def catalog_of(args: Namespace, config: LakeConfig | None) -> CatalogConnection:
    """Return the catalog of the configuration, else of ``--catalog``, else of ``[lakecdc] catalog_conn_id``."""
    return get_catalog(config.catalog if config else args.catalog or settings.catalog_conn_id())


def selected(args: Namespace) -> tuple[CatalogConnection, list[str]]:
    """Select the named tables, else those of the configuration, else all of the named catalog.

    :return: the catalog and ``namespace.name`` of each table, whether it exists or not.
    :raises InputError: no table matches.
    :raises SpecError: no table is given.
    """
    config = configuration(args)
    if config is None and not args.tables and not args.catalog:
        raise SpecError(
            "No table is given.",
            hint="Name tables, a catalog by --catalog, or a configuration by --config, the environment variable "
            f"{settings.CONFIG_FILE_VARIABLE} or [lakecdc] config_file.",
        )
    selection = config.selection if config and not args.tables else TableSelection(tuple(args.tables) or ("*",))
    catalog = catalog_of(args, config)
    tables = list(dict.fromkeys(select_tables(catalog, selection).tables))
    if not tables:
        entries = ", ".join((*selection.tables, *selection.fed))
        raise InputError(
            f"No table in catalog {catalog.name!r} matches {entries}.",
            hint="Check the spelling. A catalog in a database lists only tables created under its own name: check "
            "catalog_name in the connection's extra.",
        )
    return catalog, tables
