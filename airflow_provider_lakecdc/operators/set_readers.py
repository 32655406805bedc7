"""The operator of the job that makes tables readable for engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.contract.job_options import Outcome
from lakecdc.metadata.readers import ReaderName


class SetReadersOperator(LakecdcJobOperator, job="set_readers"):
    """Make existing tables readable for engines, in place: convert equality deletes, upgrade the format version.

    :param readers: engines that must read the tables, such as ``snowflake`` and ``trino``.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``JobOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        readers: Sequence[ReaderName] | str = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
