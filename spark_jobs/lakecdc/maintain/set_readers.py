"""Prepare a table for its readers, in place: convert deletes, and upgrade the format version."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

from lakecdc.contract.errors import ConflictError, InputError, LakecdcError, SpecError, UnsupportedError
from lakecdc.contract.report import TableReport
from lakecdc.contract.rewriting import RewriteDeleteFilesOptions, SetReadersOptions
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.lease import await_free
from lakecdc.iceberg.live_deletes import equality_deletes, has_no_equality_deletes
from lakecdc.iceberg.refs import read_refs
from lakecdc.iceberg.table import MAIN, IcebergTable
from lakecdc.maintain.delete_files import job as delete_files
from lakecdc.maintain.reports import dry_run, ends, nothing, seconds_since
from lakecdc.metadata import names
from lakecdc.metadata.readers import Form, choose_form, explain_form
from lakecdc.runtime import failpoints

log = logging.getLogger(__name__)

JOB = "set_readers"
# maximum number of conversions while others add equality deletes
_ROUNDS = 5


def set_readers(table: IcebergTable, spec: JobSpec) -> TableReport:
    """Make a table readable for its readers, and record the readers in it.

    An upgrade of the format cannot be undone, so it waits until no equality delete is left that the readers cannot
    read.

    :raises InputError: no readers are given.
    :raises SpecError: the readers contradict each other.
    :raises UnsupportedError: the table has a format version that one of them cannot read.
    """
    readers = spec.options_as(SetReadersOptions).readers
    if not readers:
        raise InputError("No readers are given.", table=table.name, hint="Set options.readers, such as ['snowflake'].")
    return Preparation(table, spec, _form(table.refresh(), readers)).run()


def _form(table: IcebergTable, readers: tuple[str, ...]) -> Form:
    form, version = choose_form(readers, table=table.name), table.format_version
    if version <= form.format_version:
        return form
    try:
        return choose_form(readers, (version,), table=table.name)
    except SpecError as error:
        raise UnsupportedError(
            f"Its format version {version} cannot be lowered. {error.message}",
            table=table.name,
            hint=f"Feed a new table of format version {form.format_version} for them.",
        ) from error


class Preparation:
    """A run that brings one table into a form."""

    def __init__(self, table: IcebergTable, spec: JobSpec, form: Form) -> None:
        self._table, self._spec, self._form = table, spec, form
        self._readers = spec.options_as(SetReadersOptions).readers
        self._promise = {names.READERS: ",".join(self._readers)}
        self._before = table.head()
        self._started = time.monotonic()
        self._equality, self._position = self._to_resolve()
        self._vectors = self._position_delete_files() if self._final_version >= 3 else 0

    @property
    def _final_version(self) -> int:
        return max(self._table.format_version, self._form.format_version)

    def run(self) -> TableReport:
        """Convert deletes, upgrade, convert remaining deletes, and record the readers."""
        steps = self._steps()
        if not steps:
            return nothing(self._table, "the table fits its readers and records them", self._before, **self._metrics())
        if self._spec.options.dry_run:
            return dry_run(self._table, self._before, steps=steps, **self._metrics())
        try:
            self._resolve()
            self._upgrade()
            self._resolve()
            self._table.update_properties(self._promise)
        except LakecdcError as error:
            return TableReport.failure(self._table.name, error, **self._facts(steps))
        return TableReport(self._table.name, "done", **self._facts(steps))

    def _steps(self) -> list[str]:
        """Return the remaining steps as instructions."""
        version = self._final_version
        is_upgraded = version > self._table.format_version
        is_recorded = self._promise.items() <= self._table.properties.items()
        todo = {
            f"convert {self._equality} equality-delete files": self._equality > 0,
            f"upgrade format version {self._table.format_version} to {version}": is_upgraded,
            "convert position-delete files to deletion vectors": self._vectors > 0
            or (is_upgraded and self._equality > 0),
            f"record the readers {', '.join(self._readers)}": not is_recorded,
        }
        return [step for step, is_due in todo.items() if is_due]

    def _to_resolve(self) -> tuple[int, int]:
        """Count the delete files that the table must not have in its current format version: by key, by position."""
        head = self._table.refresh().head()
        if head is None:
            return 0, 0
        reads_keys = self._form.deletes == "equality" or has_no_equality_deletes(head)
        equality = 0 if reads_keys else len(equality_deletes(self._table, head.id))
        return equality, self._position_delete_files() if self._table.format_version >= 3 else 0

    def _position_delete_files(self) -> int:
        """Count position-delete files that are not deletion vectors."""
        head = self._table.head()
        if head is None or head.summary.get("total-position-deletes") == "0":
            return 0
        files = self._table.metadata("delete_files", head.id)
        return files.where("content = 1 AND file_format != 'PUFFIN'").count()

    def _resolve(self) -> None:
        """Convert delete files until the table has only allowed ones.

        :raises UnsupportedError: some cannot be converted.
        :raises ConflictError: others add further delete files during every attempt, or hold the lease.
        """
        rewriting = replace(self._spec, job=delete_files.JOB, options=RewriteDeleteFilesOptions())
        for _ in range(_ROUNDS):
            if self._to_resolve() == (0, 0):
                return
            report = delete_files.rewrite_delete_files(self._table, rewriting)
            if report.failure_class == "conflict":
                raise ConflictError(str(report.reason), table=self._table.name)
            stuck = report.outcome != "done" or report.metrics["unsupported"]
            if stuck and self._to_resolve() != (0, 0):
                raise UnsupportedError(
                    f"Not all of its delete files can be converted. {report.reason}",
                    table=self._table.name,
                    hint="Rewrite the data files that they apply to by compact_data_files with max_equality_deletes, "
                    "then run again.",
                )
        raise ConflictError(
            f"Others added equality deletes during each of {_ROUNDS} conversions.",
            table=self._table.name,
            hint="Set the readers in the target first, so that ingestion writes none, then run again.",
        )

    def _upgrade(self) -> None:
        version = self._final_version
        if version > self._table.format_version:
            # files that a lease holder has staged would be of the old version
            await_free(self._table)
            failpoints.reach(f"{JOB}.before_upgrade")
            self._table.update_properties({"format-version": str(version)})
            self._table.refresh()

    def _facts(self, steps: list[str]) -> dict[str, Any]:
        after = self._table.refresh().head()
        left = sum(self._to_resolve())
        metrics = {"steps": steps, "delete_files_left": left, "seconds": seconds_since(self._started)}
        return ends(self._before, after) | {"metrics": self._metrics() | metrics}

    def _unconverted_refs(self) -> list[str]:
        """Return the tags and other branches that keep equality deletes which a reader cannot read."""
        if self._form.deletes == "equality":
            return []
        heads = ((name, self._table.snapshot(ref.snapshot_id)) for name, ref in read_refs(self._table).items())
        return sorted(name for name, head in heads if name != MAIN and head and not has_no_equality_deletes(head))

    def _metrics(self) -> dict[str, Any]:
        return {
            "readers": [*self._readers],
            "form": str(self._form),
            "why": explain_form(self._readers, self._form),
            "format_version": self._table.format_version,
            "equality_delete_files": self._equality,
            "position_delete_files": self._vectors,
            "refs_with_equality_deletes": self._unconverted_refs(),
        }
