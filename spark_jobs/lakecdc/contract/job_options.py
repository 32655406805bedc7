"""Options of several jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakecdc.contract.errors import SpecError
from lakecdc.metadata.names import quarantine_of

Outcome = Literal["done", "nothing", "skipped", "unsupported", "conflict", "failed"]


@dataclass(frozen=True)
class JobOptions:
    """Options of all jobs.

    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    """

    dry_run: bool = False
    fail_on: tuple[Outcome, ...] = ()


def check_quarantine_table(named: str | None) -> None:
    """Raise a :class:`SpecError` for a name without namespace, or fields other than ``{namespace}`` and ``{table}``."""
    try:
        parts = quarantine_of("namespace.table", named).split(".")
    except (KeyError, IndexError, ValueError):
        parts = []
    if len(parts) < 2 or not all(parts):
        raise SpecError(
            f"options.quarantine_table is {named!r}.",
            hint='It must be "namespace.name"; {namespace} and {table} in it become those of each target.',
        )
