"""The job report, version 1: the outcome of each table, and the exit code."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lakecdc.contract import fields
from lakecdc.contract.errors import LakecdcError, about
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.secrets import mask

VERSION = 1
EXIT_DONE, EXIT_OTHER, EXIT_CONFLICT, EXIT_BAD_INPUT = 0, 1, 3, 4
#: attribute of an error, and metric of the table: the run that holds the lease which the job needs
LEASE_HOLDER = "lease_holder"


@dataclass(frozen=True)
class TableReport:
    """Outcome of a job for one table; a reason never contains a secret.

    :param reason: why, unless the outcome is plainly ``done``.
    :param failure_class: conflict, bad input, cluster or unknown; None if nothing failed.
    :param snapshot_before: id of the head before, as text because JavaScript cannot hold 64 bits.
    :param snapshot_after: id of the head after.
    :param metrics: numbers and facts by name; units are part of the names.
    :param job: the step, in a job of several steps.
    """

    table: str
    outcome: Outcome
    reason: str | None = None
    failure_class: str | None = None
    snapshot_before: str | None = None
    snapshot_after: str | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    job: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", mask(self.reason) if self.reason else self.reason)

    @classmethod
    def failure(cls, table: str, error: BaseException, **facts: Any) -> TableReport:
        """Report an exception: its own outcome and class if it is ours, else ``failed`` and ``unknown``."""
        if isinstance(error, LakecdcError):
            reason = error.text if error.table == table else str(error)
            if holder := error.attributes.get(LEASE_HOLDER):
                facts["metrics"] = {**facts.get("metrics", {}), LEASE_HOLDER: holder}
            return cls(table, error.outcome, reason, error.failure_class, **facts)  # type: ignore[arg-type]
        return cls(table, "failed", describe(error), "unknown", **facts)

    @property
    def line(self) -> str:
        """Return the outcome in one line that names the table once, after the step if there is one."""
        step = f"{self.job}: " if self.job else ""
        if not self.reason:
            return f"{step}{self.table}: {self.outcome}"
        named = about(self.table, self.reason) == self.reason
        return f"{step}{self.outcome}: {self.reason}" if named else f"{step}{self.table}: {self.outcome}: {self.reason}"

    @property
    def log_line(self) -> str:
        """Return the line with the figures that are not zero; lists and positions are in the report only."""
        plain = {name: value for name, value in self.metrics.items() if isinstance(value, str | int | float)}
        return ", ".join([self.line, *each_metric(plain, zeros=False)])


@dataclass(frozen=True)
class JobReport:
    """Outcome of a job's run; an error never contains a secret.

    :param started_at: ISO-8601 in UTC, as is ``finished_at``.
    :param tables: a report per table, or per table and step.
    :param error: why the job stopped before any table.
    :param failure_class: class of that error.
    """

    job: str
    started_at: str
    finished_at: str
    spark_application_id: str | None = None
    tables: tuple[TableReport, ...] = ()
    error: str | None = None
    failure_class: str | None = None
    version: int = VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "error", mask(self.error) if self.error else self.error)

    def exit_code(self, fail_on: tuple[str, ...] = ()) -> int:
        """Return 0 if fine, 3 for conflict, 4 for bad input, 1 for others; the first of 1, 4, 3 if several apply.

        :param fail_on: further outcomes that count as failures.
        """
        classes = {self.failure_class} if self.error else set()
        for table in self.tables:
            if table.outcome in ("failed", "conflict"):
                classes.add(table.failure_class)
            elif table.outcome in fail_on:
                classes.add(table.failure_class or "unknown")
        if not classes:
            return EXIT_DONE
        if classes - {"conflict", "bad input"}:
            return EXIT_OTHER
        return EXIT_BAD_INPUT if "bad input" in classes else EXIT_CONFLICT

    def to_json(self) -> str:
        """Return the JSON text of ``--report``."""
        return json.dumps(dataclasses.asdict(self), indent=2, default=str)


def log_tables(log: Callable[..., object], tables: Iterable[TableReport]) -> None:
    """Log one line per table by a logger's method ``log``, failures as errors."""
    for table in tables:
        log(logging.ERROR if table.outcome in ("failed", "conflict") else logging.INFO, "%s", table.log_line)


def each_metric(metrics: Mapping[str, Any], *, zeros: bool = True) -> Iterator[str]:
    """Yield metrics as ``name=value``; values before and after as a pair, if they differ."""
    for name, value in metrics.items():
        stem = name.removesuffix("_before").removesuffix("_after")
        before, after = (metrics.get(f"{stem}_{moment}") for moment in ("before", "after"))
        if stem == name or before is None or after is None:
            if value or zeros:
                yield f"{name}={_short(value)}"
        elif name.endswith("_before") and before != after:
            yield f"{stem}={_short(before)}→{_short(after)}"


def _short(value: Any) -> str:
    text = f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def parse_report(document: Mapping[str, Any]) -> JobReport:
    """Decode a report; raise a :class:`SpecError` for another version."""
    return fields.parse(JobReport, document, "report")


def describe(error: BaseException) -> str:
    """Describe an exception in one paragraph: a lakecdc error by its own text, others by type and first line."""
    if isinstance(error, LakecdcError):
        return str(error)
    first, *others = str(error).splitlines() or [""]
    # for an exception in the JVM py4j puts the name of its own handle first
    if others and others[0].startswith(": "):
        return others[0].removeprefix(": ")
    return f"{type(error).__name__}: {first}"


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
