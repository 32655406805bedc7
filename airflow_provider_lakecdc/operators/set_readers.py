"""The operator of the job that makes tables readable for engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from lakecdc.metadata.readers import ReaderName


class SetReadersOperator(LakecdcJobOperator, job="set_readers"):
    """Make existing tables readable for engines, in place: convert equality deletes, upgrade the format version.

    Options: ``lakecdc.contract.rewriting.SetReadersOptions``. Other arguments: :class:`LakecdcJobOperator`.
    """

    def __init__(
        self,
        *,
        readers: Sequence[ReaderName] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)
