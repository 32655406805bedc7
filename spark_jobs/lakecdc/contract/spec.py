"""The job spec, version 1: the document that says which job does what to which tables of which catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakecdc.contract import fields
from lakecdc.contract.errors import SpecError
from lakecdc.contract.options import OPTIONS, JobOptions
from lakecdc.contract.secrets import refuse_literals
from lakecdc.contract.sources import Source, parse_source
from lakecdc.contract.target import Target, parse_targets
from lakecdc.metadata.names import quarantine_of

VERSION = 1
#: jobs whose specs have a source and targets
FEEDING_JOBS = ("ingest", "replay_quarantine")
_CATALOG_NAME = re.compile(r"[A-Za-z_]\w*\Z")
#: sources that load a table in full before they follow its changes
LOADED_SOURCES = ("postgres", "mysql")
_KEYS = {"version", "job", "catalog", "tables", "options", "source", "target"}


@dataclass(frozen=True)
class Catalog:
    """A catalog as pyiceberg names it.

    :param name: stored in the catalog's own rows, so both sides must use the same; ``[A-Za-z_]\\w*``.
    :param properties: pyiceberg's property names; a value may be a secret reference.
    """

    name: str
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobSpec:
    """A parsed and checked job spec.

    :param job: name of the job, the script's name without ``.py``.
    :param catalog: where the tables live.
    :param tables: ``namespace.name`` of each table to work on.
    :param options: the job's own options, already typed.
    :param source: where changes come from (``FEEDING_JOBS`` only).
    :param targets: how each table is to be fed (``FEEDING_JOBS`` only).
    """

    job: str
    catalog: Catalog
    tables: tuple[str, ...]
    options: JobOptions
    source: Source | None = None
    targets: tuple[Target, ...] = ()


def parse_spec(document: Any, job: str | None = None) -> JobSpec:
    """Check a spec document and turn it into a :class:`JobSpec`.

    :param document: the decoded JSON.
    :param job: name the document must carry, if the caller is one particular job.
    :raises SpecError: anything unknown, missing, of a wrong type, or a secret written out.
    """
    if not isinstance(document, Mapping):
        raise SpecError("The spec must be a JSON object.")
    fields.refuse_unknown(document, _KEYS, "the spec")
    if document.get("version") != VERSION:
        raise SpecError(f"The spec has version {document.get('version')!r}; this job reads version {VERSION}.")
    name = fields.coerce(str, document.get("job"), "job")
    if name not in OPTIONS or (job and name != job):
        raise SpecError(f"The spec is for job {name!r}.", hint=f"This script runs {job or ', '.join(OPTIONS)}.")
    options = fields.parse(OPTIONS[name], document.get("options", {}), "options")
    tables = fields.coerce(tuple[str, ...], document.get("tables", []), "tables")
    for table in tables:
        check_table_name(table, "tables")
    for table in getattr(options, "side_tables", ()):
        check_table_name(table, "options.side_tables")
    catalog = parse_catalog(document.get("catalog"))
    if name in FEEDING_JOBS:
        targets = parse_targets(document.get("target"))
        _check_quarantines(targets, getattr(options, "quarantine_table", None))
        targets = _select(targets, tables)
        source = parse_source(document.get("source"), targets)
        _check_reload(getattr(options, "reload", ()), source, targets)
        return JobSpec(name, catalog, tuple(t.table for t in targets), options, source, targets)
    for key in ("source", "target"):
        if key in document:
            raise SpecError(f"{key!r} belongs to the job {FEEDING_JOBS[0]!r}, not to {name!r}.")
    if not tables:
        raise SpecError("tables names no table.", hint='Give at least one, such as "tables": ["shop.orders"].')
    return JobSpec(name, catalog, tables, options)


def _check_reload(reload: tuple[str, ...], source: Any, targets: tuple[Target, ...]) -> None:
    """Refuse to load again what is no target, or what has no full load."""
    known = {target.table for target in targets}
    missing = [table for table in reload if table not in known and table != "*"]
    if missing and not any(target.is_pattern for target in targets):
        raise SpecError(f"options.reload names {missing[0]!r}, which is no target.", hint=f"Targets: {sorted(known)}.")
    if reload and source.type not in LOADED_SOURCES:
        raise SpecError(
            f"options.reload is given, and a source of type {source.type!r} makes no full load.",
            hint=f"Only {' and '.join(LOADED_SOURCES)} do.",
        )
    events = [target.table for target in targets if target.mode == "history" and {target.table, "*"} & {*reload}]
    if events:
        raise SpecError(
            "Its mode is history: a full load in place of its events would forget them.",
            table=events[0],
            hint="Leave it out of options.reload.",
        )


def parse_catalog(document: Any) -> Catalog:
    """Check the spec's ``catalog`` object.

    :raises SpecError: a secret written out, or a name that Spark and pyiceberg cannot both use.
    """
    refuse_literals(document, "catalog")
    catalog = fields.parse(Catalog, document, "catalog")
    if not _CATALOG_NAME.match(catalog.name):
        raise SpecError(
            f"catalog.name is {catalog.name!r}.",
            hint="Use letters, digits and underscores, not starting with a digit; it is part of SQL names.",
        )
    return catalog


def check_table_name(table: str, where: str) -> None:
    """Refuse a table name without a namespace or with an empty part.

    :raises SpecError: naming the offending value.
    """
    parts = table.split(".")
    if len(parts) < 2 or not all(parts):
        raise SpecError(f"{where} names {table!r}.", hint='A table is "namespace.name", without the catalog.')


def loads(text: str) -> Any:
    """Decode a spec's JSON text.

    :raises SpecError: if it is not JSON.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        raise SpecError(f"The spec is not JSON: {error}.") from error


def _check_quarantines(targets: tuple[Target, ...], named: str | None) -> None:
    fed = {name for target in targets for name in (target.table, target.history_table)}
    for target in targets:
        if named and (kept := quarantine_of(target.table, named)) in fed:
            raise SpecError(f"options.quarantine_table is {kept!r}, which is also a target.", table=target.table)


def _select(targets: tuple[Target, ...], tables: tuple[str, ...]) -> tuple[Target, ...]:
    if not tables:
        return targets
    known = {target.table for target in targets}
    for table in tables:
        if table not in known:
            raise SpecError(f"tables names {table!r}, which no target describes.", hint=f"Targets: {sorted(known)}.")
    return tuple(target for target in targets if target.table in tables)
