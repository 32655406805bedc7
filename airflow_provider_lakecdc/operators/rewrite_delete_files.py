"""The operator of the job that rewrites delete files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.rewriting import Verify


class RewriteDeleteFilesOperator(LakecdcJobOperator, job="rewrite_delete_files"):
    """Rewrite equality deletes as position deletes (format v2) or deletion vectors (v3), and merge position deletes.

    :param position_deletes: ``merge`` rewrites position deletes too, so that each data file has its own delete file,
        and drops those that apply to nothing; ``keep`` leaves them unless equality deletes apply to the same file.
    :param min_input_files: number of a data file's position-delete files from which they are merged.
    :param branch: the branch to rewrite.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``VerifiedOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        position_deletes: Literal["merge", "keep"] | str = "merge",
        min_input_files: int | str = 2,
        branch: str = "main",
        verify: Verify | str = "auto",
        verify_off_reason: str | None = None,
        max_runtime: float | str = 0.0,
        keep_failed_files: bool | str = False,
        side_tables: Sequence[str] | str = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
