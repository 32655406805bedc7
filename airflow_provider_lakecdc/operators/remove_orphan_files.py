"""The operator of the job that removes orphan files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class RemoveOrphanFilesOperator(LakecdcJobOperator, job="remove_orphan_files"):
    """Find files that no metadata of a table references. By default a dry run that only lists them.

    With ``dry_run=False`` they are removed reversibly, and deleted by a later run.

    Options: ``lakecdc.contract.expiring.RemoveOrphanFilesOptions``. Other arguments: :class:`LakecdcJobOperator`.
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
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
