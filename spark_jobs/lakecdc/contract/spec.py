"""The job spec, version 1: which job does what to which tables of which catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from lakecdc.contract import fields
from lakecdc.contract.errors import SpecError
from lakecdc.contract.job_options import JobOptions
from lakecdc.contract.options import OPTIONS, GovernOptions, Step
from lakecdc.contract.secrets import refuse_literals
from lakecdc.contract.sources import FEEDING, WITH_TABLES, Source, parse_source
from lakecdc.contract.target import Target, parse_targets
from lakecdc.metadata.names import quarantine_of

Options = TypeVar("Options", bound=JobOptions)
VERSION = 1
#: jobs that feed tables
FEEDING_JOBS = ("ingest", "replay_quarantine")
#: the job that compares tables with their source
RECONCILE = "reconcile"
#: jobs whose specs have a source and targets
SOURCE_JOBS = (*FEEDING_JOBS, RECONCILE)
#: the job that does several jobs' work in one application
GOVERN = "govern"
_CATALOG_NAME = re.compile(r"[A-Za-z_]\w*\Z")
#: sources that load a table in full before they follow its changes
LOADED_SOURCES = ("postgres", "mysql")
#: sources from which single rows can be loaded again
REPAIRING_SOURCES = (*LOADED_SOURCES, "jdbc")
_KEYS = {"version", "job", "catalog", "tables", "options", "source", "target"}


@dataclass(frozen=True)
class Catalog:
    """A catalog.

    :param name: stored in the catalog's own rows, so both sides must use the same; ``[A-Za-z_]\\w*``.
    :param properties: pyiceberg's properties; a value may be a secret reference.
    """

    name: str
    properties: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class JobSpec:
    """A parsed and checked job spec.

    :param job: name of the job, the script's name without ``.py``.
    :param tables: ``namespace.name`` of each table to work on; for ``govern`` those of all steps.
    :param source: only for ``SOURCE_JOBS``, like ``targets``.
    :param aggregated: targets that are aggregated from history tables, which are among ``targets`` in their place.
    :param steps: for ``govern``, each as the spec of its own job.
    :param documents: URI of the report's folder; not a key of the document.
    """

    job: str
    catalog: Catalog
    tables: tuple[str, ...]
    options: JobOptions
    source: Source | None = None
    targets: tuple[Target, ...] = ()
    aggregated: tuple[Target, ...] = ()
    steps: tuple[JobSpec, ...] = ()
    documents: str | None = None

    @property
    def side_tables(self) -> tuple[str, ...]:
        """Further tables to work on, each only if it exists."""
        return getattr(self.options, "side_tables", ())

    def options_as(self, kind: type[Options]) -> Options:
        """Return the options in the type of the spec's own job."""
        assert isinstance(self.options, kind)
        return self.options

    def changes(self, job: str | None, table: str) -> bool:
        """Check whether a table's report, of one step if there are steps, describes changes, not a dry run's plan."""
        if job is None or not self.steps:
            return not self.options.dry_run
        doing = [step for step in self.steps if step.job == job and table in (*step.tables, *step.side_tables)]
        return any(not step.options.dry_run for step in doing)

    def reported_to(self, folder: str) -> JobSpec:
        """Return the spec with the folder of its report."""
        return replace(self, documents=folder, steps=tuple(step.reported_to(folder) for step in self.steps))


def parse_spec(document: Any, job: str | None = None) -> JobSpec:
    """Parse and check a spec document.

    :param job: name that the document must have, if the caller is one particular job.
    :raises SpecError: anything unknown, missing, of a wrong type, or a literal secret.
    """
    if not isinstance(document, Mapping):
        raise SpecError("The spec must be a JSON object.")
    fields.refuse_unknown(document, _KEYS, "the spec")
    if document.get("version") != VERSION:
        raise SpecError(f"The spec has version {document.get('version')!r}; this job reads version {VERSION}.")
    name = fields.coerce(str, document.get("job"), "job")
    if name not in OPTIONS or (job and name != job):
        raise SpecError(f"The spec is for job {name!r}.", hint=f"This script runs {job or ', '.join(OPTIONS)}.")
    options = _parse_options(name, document.get("options", {}))
    tables = _parse_tables(document.get("tables", []))
    catalog = parse_catalog(document.get("catalog"))
    if name in SOURCE_JOBS:
        targets = parse_targets(document.get("target"))
        _check_quarantines(targets, getattr(options, "quarantine_table", None))
        targets = _select(targets, tables)
        source = parse_source(document.get("source"), targets, WITH_TABLES if name == RECONCILE else FEEDING)
        if name == RECONCILE:
            _check_reconcile(targets, options, source)
        _check_reload(getattr(options, "reload", ()), source, targets)
        tables, aggregated = tuple(t.table for t in targets), tuple(t for t in targets if t.is_aggregated)
        # the source feeds the history tables of aggregated targets
        fed = tuple(target.history() if target.is_aggregated else target for target in targets)
        return JobSpec(name, catalog, tables, options, source, fed, aggregated)
    for key in ("source", "target"):
        if key in document:
            raise SpecError(f"{key!r} belongs to the job {FEEDING_JOBS[0]!r}, not to {name!r}.")
    if isinstance(options, GovernOptions):
        steps = _parse_steps(catalog, tables, options)
        return JobSpec(name, catalog, _tables_of(steps), options, steps=steps)
    if not tables:
        raise SpecError("tables names no table.", hint='Give at least one, such as "tables": ["shop.orders"].')
    return JobSpec(name, catalog, tables, options)


def _parse_options(job: str, document: Any) -> JobOptions:
    options = fields.parse(OPTIONS[job], document, "options")
    for table in getattr(options, "side_tables", ()):
        check_table_name(table, "options.side_tables")
    return options


def _parse_tables(document: Any) -> tuple[str, ...]:
    tables: tuple[str, ...] = fields.coerce(tuple[str, ...], document, "tables")
    for table in tables:
        check_table_name(table, "tables")
    return tables


def _parse_steps(catalog: Catalog, tables: tuple[str, ...], options: GovernOptions) -> tuple[JobSpec, ...]:
    """Parse the steps of ``govern`` as strictly as whole specs; ``tables`` apply to steps without tables."""
    if not options.steps:
        raise SpecError(
            "options.steps names no step.", hint='Give at least one, such as "steps": [{"job": "compact_data_files"}].'
        )
    steps, seen = [], set[tuple[str, str]]()
    for number, step in enumerate(options.steps):
        try:
            parsed = _parse_step(catalog, tables, step, options.dry_run)
            for table in (*parsed.tables, *parsed.side_tables):
                if (parsed.job, table) in seen:
                    raise SpecError("An earlier step does the same job to it.", table=table)
            seen |= {(parsed.job, table) for table in (*parsed.tables, *parsed.side_tables)}
        except SpecError as error:
            raise SpecError(f"options.steps[{number}], {step.job}: {error}", **error.attributes) from error
        steps.append(parsed)
    return tuple(steps)


def _parse_step(catalog: Catalog, tables: tuple[str, ...], step: Step, dry_run: bool) -> JobSpec:
    known = [job for job in OPTIONS if job not in (*SOURCE_JOBS, GOVERN)]
    if step.job not in known:
        raise SpecError("This job cannot be a step.", hint=f"A step is one of {', '.join(known)}.")
    options = _parse_options(step.job, step.options)
    if options.fail_on:
        raise SpecError("fail_on is for all steps.", hint="Give it in the options of the whole job.")
    named = tables if step.tables is None else _parse_tables(step.tables)
    if step.tables is None and not named:
        raise SpecError("Neither the step nor the spec names a table.", hint='Add "tables" to one of them.')
    return JobSpec(step.job, catalog, named, replace(options, dry_run=options.dry_run or dry_run))


def _tables_of(steps: tuple[JobSpec, ...]) -> tuple[str, ...]:
    tables = tuple(dict.fromkeys(table for step in steps for table in step.tables))
    if not tables:
        raise SpecError("No step names a table.", hint='Give at least one, such as "tables": ["shop.orders"].')
    return tables


def _check_reconcile(targets: tuple[Target, ...], options: JobOptions, source: Any) -> None:
    """Refuse tables without the source's current rows, and repairs from a source that cannot load single rows."""
    for target in targets:
        if target.is_aggregated:
            raise SpecError(
                "Its rows are aggregated from many source rows.",
                table=target.table,
                hint="Remove it from the targets.",
            )
        if not target.keyed:
            raise SpecError(
                f"Its mode is {target.mode}: it does not contain the source's current rows, one per key.",
                table=target.table,
                hint="Remove it: only tables of mode upsert, merge or auto can be compared with their source.",
            )
    if getattr(options, "repair", False) and source.type not in REPAIRING_SOURCES:
        raise SpecError(
            f"options.repair is set, but a source of type {source.type!r} cannot load single rows.",
            hint=f"Only {', '.join(REPAIRING_SOURCES)} can; from others load the table again.",
        )


def _check_reload(reload: tuple[str, ...], source: Any, targets: tuple[Target, ...]) -> None:
    """Refuse to reload a table that is not a target or has no full load."""
    known = {target.table for target in targets}
    missing = [table for table in reload if table not in known and table != "*"]
    if missing and not any(target.is_pattern for target in targets):
        raise SpecError(
            f"options.reload names {missing[0]!r}, which is not a target.", hint=f"Targets: {sorted(known)}."
        )
    if reload and source.type not in LOADED_SOURCES:
        raise SpecError(
            f"options.reload is set, but a source of type {source.type!r} has no full load.",
            hint=f"Only {' and '.join(LOADED_SOURCES)} do.",
        )
    of_events = (target for target in targets if target.mode == "history" or target.is_aggregated)
    events = [target.table for target in of_events if {target.table, "*"} & {*reload}]
    if events:
        raise SpecError(
            "Its mode is history, or it is aggregated from a history table: a full load would replace its events.",
            table=events[0],
            hint="Remove it from options.reload.",
        )


def parse_catalog(document: Any) -> Catalog:
    """Parse the ``catalog`` object; raise a :class:`SpecError` for a literal secret or a name to quote in SQL."""
    refuse_literals(document, "catalog")
    catalog = fields.parse(Catalog, document, "catalog")
    if not _CATALOG_NAME.match(catalog.name):
        raise SpecError(
            f"catalog.name is {catalog.name!r}.",
            hint="Use letters, digits and underscores, not starting with a digit; it is part of SQL names.",
        )
    return catalog


def check_table_name(table: str, where: str) -> None:
    """Raise a :class:`SpecError` for a table name without a namespace or with an empty part."""
    parts = table.split(".")
    if len(parts) < 2 or not all(parts):
        raise SpecError(f"{where} names {table!r}.", hint='A table is "namespace.name", without the catalog.')


def loads(text: str) -> Any:
    """Decode a spec's JSON text; raise a :class:`SpecError` if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise SpecError(f"The spec is not JSON: {error}.") from error


def _check_quarantines(targets: tuple[Target, ...], named: str | None) -> None:
    fed = {name for target in targets for name in (target.table, target.history_table)}
    for target in targets:
        if target.feed and not named:
            raise SpecError(
                "feed is set without options.quarantine_table, so that messages of several sources would share one.",
                table=target.table,
                hint=f'Set a table for this job, such as "{{namespace}}.{target.feed}_quarantine".',
            )
        if named and (quarantine := quarantine_of(target.table, named)) in fed:
            raise SpecError(f"options.quarantine_table is {quarantine!r}, which is also a target.", table=target.table)


def _select(targets: tuple[Target, ...], tables: tuple[str, ...]) -> tuple[Target, ...]:
    if not tables:
        return targets
    known = {target.table for target in targets}
    for table in tables:
        if table not in known:
            raise SpecError(f"tables names {table!r}, which no target describes.", hint=f"Targets: {sorted(known)}.")
    return tuple(target for target in targets if target.table in tables)
