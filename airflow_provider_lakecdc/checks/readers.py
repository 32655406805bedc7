"""Checks of the tables' readers: the form that they choose for targets, and existing tables that they cannot read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from airflow_provider_lakecdc.governance.discovery import TableSelection, select_tables
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.lake.status import misfit_of, recorded_readers
from airflow_provider_lakecdc.lake.tables import read_tables
from lakecdc.contract.findings import Finding, merge_passed, run_check
from lakecdc.contract.secrets import mask
from lakecdc.contract.target import Target, parse_targets
from lakecdc.metadata.policy import matching, pattern_of
from lakecdc.metadata.readers import Deletes, explain_form

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from airflow_provider_lakecdc.templates.config import LakeConfig

_CHECK = "readers of"
#: readers of a table that ingestion feeds, and the deletes that are written to it
Fed = tuple[Sequence[str], Deletes]


def findings(config: LakeConfig) -> Iterator[Finding]:
    """Report which form each target's readers choose and why, and which existing tables do not fit their readers."""
    targets = parse_targets(config.complete_targets) if config.targets else ()
    for target in targets:
        if target.readers:
            reason = explain_form(target.readers, target.form, target.kinds_of_deletes)
            yield Finding(f"{_CHECK} {target.table}", "ok", f"{', '.join(target.readers)}: {reason}")
    existing: list[Finding] = []
    whole = run_check("readers", _existing, config, targets, existing)
    yield from [whole] if whole.state == "fail" else merge_passed("readers", existing, "tables fit their readers")


def _existing(config: LakeConfig, targets: Sequence[Target], answers: list[Finding]) -> str:
    fed: dict[str, Fed] = {}
    for target in targets:
        fed[pattern_of(target.table)] = target.readers, target.form.deletes
        if target.history_table:
            fed[pattern_of(target.history_table)] = target.readers, "none"

    def read(name: str, table: Table | None) -> Finding | None:
        return None if table is None else _finding(config, fed, name, table)

    def failed(name: str, error: Exception) -> Finding:
        return Finding(f"{_CHECK} {name}", "warn", mask(f"it cannot be read: {error}"), "Check its metadata and files.")

    catalog, selection = get_catalog(config.catalog), config.selection
    more = TableSelection(tuple(dict.fromkeys((*selection.tables, *fed))), selection.fed)
    answers += [
        each for each in read_tables(catalog, select_tables(catalog, more).tables, read, failed).values() if each
    ]
    return "read"


def _finding(config: LakeConfig, fed: Mapping[str, Fed], name: str, table: Table) -> Finding | None:
    """Compare a table with the readers of its target, else of its policy, else in its properties."""
    # the pattern of a history table is longer than that of its target
    patterns = sorted((pattern for pattern in fed if matching([pattern], [name])), key=len)
    configured, deletes = fed[patterns[-1]] if patterns else (config.readers_of(name), "none")
    readers = configured or recorded_readers(table)
    if not readers:
        return None
    misfit = misfit_of(table, readers, deletes=deletes)
    check = f"{_CHECK} {name}"
    return Finding(check, "warn", misfit.text, misfit.remedy) if misfit else Finding(check, "ok", "it fits")
