"""Feed whole databases: a target with ``{table}`` in its name becomes one target for each current source table.

A later table is fed from the next run on, with a full load if the source supports it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from lakecdc.contract.errors import InputError
from lakecdc.contract.findings import Finding, run_check
from lakecdc.contract.spec import JobSpec
from lakecdc.contract.target import Target
from lakecdc.ingest.sources import source_module
from lakecdc.metadata.names import is_side_table, quarantine_of

log = logging.getLogger(__name__)


def expand_targets(spark: SparkSession, spec: JobSpec) -> tuple[JobSpec, dict[str, InputError]]:
    """Return the spec with every table named, and the targets that several source tables would feed, with the error.

    A table that another target names as its ``source_table``, or that would get the name of another target, belongs to
    that one. A table whose target would have the name of one of lakecdc's own tables is left out.

    :raises InputError: no target is left.
    """
    if not _has_patterns(spec):
        return spec, {}
    assert spec.source is not None
    module = source_module(spec.source.type)
    if not hasattr(module, "source_tables"):
        raise InputError(
            f"A source of type {spec.source.type!r} cannot list its tables.",
            hint='Name every target, without "{table}".',
        )
    return with_named_targets(spec, module.source_tables(spark, spec))


def check_patterns(spec: JobSpec, tables: Callable[[], Sequence[str]], named: list[JobSpec]) -> Iterator[Finding]:
    """Check which source tables match patterns; ``named`` receives the spec with every target named."""
    if _has_patterns(spec):
        yield run_check("source_tables", _matched, spec, tables, named)
    else:
        named.append(spec)


def _matched(spec: JobSpec, tables: Callable[[], Sequence[str]], named: list[JobSpec]) -> str:
    spec, shared = with_named_targets(spec, tables())
    named.append(spec)
    for error in shared.values():
        raise error
    return f"{len(spec.targets)} tables of the source match"


def _has_patterns(spec: JobSpec) -> bool:
    return any(target.is_pattern for target in spec.targets)


def with_named_targets(spec: JobSpec, source_tables: Sequence[str]) -> tuple[JobSpec, dict[str, InputError]]:
    """Name every target of a spec, given the source's tables; see :func:`expand_targets`."""
    targets, shared = named_targets(
        spec.targets, sorted(source_tables), getattr(spec.options, "quarantine_table", None)
    )
    if not targets:
        raise InputError(
            f"None of the source's {len(source_tables)} tables matches source_tables.",
            hint=f"The source has {', '.join(sorted(source_tables)[:20]) or 'none'}.",
        )
    return replace(spec, targets=targets, tables=tuple(t.table for t in targets)), shared


def named_targets(
    targets: Sequence[Target], source_tables: Sequence[str], quarantine: str | None = None
) -> tuple[tuple[Target, ...], dict[str, InputError]]:
    """Name the targets of patterns, and return the targets that several source tables would feed."""
    shared: dict[str, InputError] = {}
    named = [t for t in targets if not t.is_pattern]
    own, fed_by = {t.source_table for t in named}, {t.table: "" for t in named}
    expanded = [p.for_source_table(name) for p in targets if p.is_pattern for name in source_tables if p.matches(name)]
    quarantines = {quarantine_of(t.table, quarantine) for t in (*named, *expanded)}
    for pattern in (t for t in targets if t.is_pattern):
        for source_table in source_tables:
            target = pattern.for_source_table(source_table)
            if source_table in own or not pattern.matches(source_table) or fed_by.get(target.table) == "":
                continue
            names = [n for n in (target.table, target.history_table) if n]
            ours = [n for n in names if is_side_table(n) or n in quarantines]
            if ours:
                log.warning("%s is not fed: %s is a name of lakecdc's own tables", source_table, ours[0])
                continue
            if target.table in fed_by:
                shared[target.table] = InputError(
                    f"{fed_by[target.table]} and {source_table} would both feed it.",
                    table=target.table,
                    hint="Use {schema} in the target's name too, or exclude one of them.",
                )
                continue
            fed_by[target.table] = source_table
            named.append(target)
    return tuple(named), shared
