"""Whole databases: a target whose name has ``{table}`` in it becomes one target for each table that the source has now.

So a table that appears later is fed from the next run on, with a full load where the source makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from lakecdc.contract.errors import InputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.contract.target import Target


def expanded(spark: SparkSession, spec: JobSpec) -> JobSpec:
    """The spec with every table named.

    A table that another target names as its ``source_table``, or that would get the name of another target, belongs
    to that one.

    :raises InputError: if two source tables would share a target, or none is found for all the targets together.
    """
    if not any(target.is_pattern for target in spec.targets):
        return spec
    assert spec.source is not None
    package = import_module(f"lakecdc.ingest.sources.{spec.source.type}")
    if not hasattr(package, "source_tables"):
        raise InputError(
            f"A source of type {spec.source.type!r} cannot tell which tables it has.",
            hint='Name every target, without "{table}".',
        )
    found = package.source_tables(spark, spec)
    targets = _named(spec.targets, sorted(found))
    if not targets:
        raise InputError(
            f"None of the source's {len(found)} tables is meant by source_tables.",
            hint=f"The source has {', '.join(sorted(found)[:20]) or 'none'}.",
        )
    return replace(spec, targets=targets, tables=tuple(t.table for t in targets))


def _named(targets: Sequence[Target], found: Sequence[str]) -> tuple[Target, ...]:
    named = [t for t in targets if not t.is_pattern]
    own, taken = {t.source_table for t in named}, {t.table: "" for t in named}
    for pattern in (t for t in targets if t.is_pattern):
        for source_table in found:
            target = pattern.for_source_table(source_table)
            if source_table in own or not pattern.wants(source_table) or taken.get(target.table) == "":
                continue
            if target.table in taken:
                raise InputError(
                    f"{taken[target.table]} and {source_table} would both feed it.",
                    table=target.table,
                    hint="Use {schema} in the target's name as well, or exclude one of them.",
                )
            taken[target.table] = source_table
            named.append(target)
    return tuple(named)
