"""The operator of the job that removes orphan files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class RemoveOrphanFilesOperator(LakecdcJobOperator, job="remove_orphan_files"):
    """Find files that no metadata of a table references. By default a dry run that only lists them.

    With ``dry_run=False`` they are removed reversibly, and deleted by a later run.

    :param action: ``remove`` removes orphan files reversibly, and deletes those that earlier runs removed; ``purge``
        only deletes these; ``restore`` brings them back unless they are deleted.
    :param min_age: seconds since a file was written before it can be an orphan; at least three days.
    :param longest_job: duration in seconds of the longest job that writes to the tables; files younger than twice that
        are skipped too.
    :param delay: seconds between removal and deletion; at least a day.
    :param run: id of a single run to restore or purge, from its report; default: all.
    :param dry_run: find and count, change nothing, regardless of the action.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``ApprovableOptions``, ``RemovingOptions``,
        ``MaintenanceOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        action: Literal["remove", "restore", "purge"] | str = "remove",
        min_age: float | str = 259_200.0,
        longest_job: float | str = 86_400.0,
        delay: float | str = 604_800.0,
        run: str | None = None,
        approved: Mapping[str, Mapping[str, Any]] | str | None = None,
        protection: Mapping[str, Mapping[str, Any]] | str | None = None,
        side_tables: Sequence[str] | str = (),
        dry_run: bool | str = True,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
