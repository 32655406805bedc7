"""The operator of the job that restores tables as of a past moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome


class RestoreMomentOperator(LakecdcJobOperator, job="restore_moment"):
    """Restore tables as of one moment of their source, each on a branch or in another table.

    :param action: ``restore``, or ``drop`` to remove the moment's branch and tag from the tables.
    :param moment: ISO-8601 time at the source; everything committed up to it is restored.
    :param history_tables: history table by table.
    :param branch: branch of each table for the restored state; default: ``moment-2026-01-31T00-03-00``, the moment in
        UTC. The tag ``<branch>-as-restored`` does not move if the branch is written to.
    :param keep_for: seconds for which branch and tag are kept.
    :param into: by table, a table for the restored state instead of a branch; it is created if it does not exist, and
        replaced if it has an earlier restored state of the table.
    :param quarantine_table: as for ``ingest``.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``JobOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        action: Literal["restore", "drop"] | str = "restore",
        moment: str | None = None,
        history_tables: Mapping[str, str] | str | None = None,
        branch: str | None = None,
        keep_for: float | str = 2_592_000.0,
        into: Mapping[str, str] | str | None = None,
        quarantine_table: str | None = None,
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
