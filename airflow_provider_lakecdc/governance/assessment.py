"""Assessments of tables: what they need, which jobs are allowed on them, and how healthy they are."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lakecdc.contract import fields
from lakecdc.metadata.freshness import Freshness
from lakecdc.metadata.plan import Action, Skipped


@dataclass(frozen=True)
class Steps:
    """The jobs to assess.

    :param options: each job's options, in the order of work.
    :param beside: shared side tables by job.
    :param own: jobs for single tables, with the options of each table; all other jobs are for all tables.
    """

    options: Mapping[str, Mapping[str, Any]]
    beside: Mapping[str, Sequence[str]] = field(default_factory=dict)
    own: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)

    def for_table(self, table: str) -> dict[str, dict[str, Any]]:
        """Return the jobs for a table with their options."""
        return {
            job: {**options, **self.own.get(job, {}).get(table, {})}
            for job, options in self.options.items()
            if job not in self.own or table in self.own[job]
        }


@dataclass(frozen=True)
class Assessed:
    """The assessment of one table.

    :param beside: the table whose side table it is, if any.
    :param approve: the jobs that need approval.
    :param health: facts of its health; None if the table cannot be read, or is too large for a worker and not yet
        measured by a job.
    :param measured_at: ISO-8601 time of a job's measurement; None if measured now.
    :param idle: jobs with nothing to do, with the reason.
    :param freshness: how it keeps its promise; None if nothing is promised, or the table cannot be read.
    :param error: why the table cannot be assessed.
    """

    table: str
    beside: str | None = None
    owner: str | None = None
    jobs: tuple[str, ...] = ()
    approve: tuple[str, ...] = ()
    health: dict[str, Any] | None = None
    measured_at: str | None = None
    idle: dict[str, str] = field(default_factory=dict)
    freshness: Freshness | None = None
    error: str | None = None
    is_absent: bool = False


@dataclass(frozen=True)
class Assessment:
    """Tables, their possible actions, and work that must wait, at an ISO-8601 time.

    :param is_partial: only tables that a run was given were assessed.
    """

    measured_at: str
    tables: tuple[Assessed, ...] = ()
    actions: tuple[Action, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    is_partial: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self), default=str, allow_nan=False)

    @property
    def unreadable(self) -> dict[str, str]:
        """Return the errors of existing tables, except of side tables of a table with an error."""
        errors = {each.table: each.error for each in self.tables if each.error}
        beside = {each.table: each.beside for each in self.tables}
        return {table: error for table, error in errors.items() if beside[table] not in errors}


def parse_assessment(document: Mapping[str, Any]) -> Assessment:
    """Parse a serialized assessment.

    :raises SpecError: it is invalid.
    """
    return fields.parse(Assessment, document, "assessment")
