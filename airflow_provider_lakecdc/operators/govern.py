"""The operator of the job that runs several jobs in one Spark application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.submit.submission import table_list
from lakecdc.contract.job_options import Outcome


class GovernOperator(LakecdcJobOperator, job="govern"):
    """Run several maintenance jobs one after another, in one Spark application with one report.

    A table for which a step failed is skipped by later steps; the others continue. In the return value each table has
    the overall outcome of its steps, and below ``steps`` the outcome of each by its job.

    :param steps: the steps in the order of work.
    :param dry_run: run all steps dry; otherwise each step follows its own option.
    :param kwargs: see :class:`LakecdcJobOperator`. Other options: ``JobOptions`` in ``lakecdc.contract``.
    """

    def __init__(
        self,
        *,
        steps: Sequence[Mapping[str, Any]] | str = (),
        dry_run: bool | str = False,
        fail_on: Sequence[Outcome] | str = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(options=self.options_in(locals()), **kwargs)

    def named_tables(self) -> tuple[list[str], list[str]]:
        """Return the tables and the side tables of all steps."""
        tables = [table for step in self._steps for table in self._tables_of(step)]
        beside = [table for step in self._steps for table in _beside(step)]
        return list(dict.fromkeys(tables)), list(dict.fromkeys(beside))

    def keep_tables(self, tables: Sequence[str], beside: Sequence[str]) -> None:
        """Restrict each step to some tables."""
        self.options["steps"] = [self._restrict(step, tables, beside) for step in self._steps]
        self.tables = list(tables)

    @property
    def _steps(self) -> list[Mapping[str, Any]]:
        steps = self.options["steps"]
        if isinstance(steps, str) or not all(isinstance(step, Mapping) for step in steps):
            raise JobBadInputError("steps must be a list of objects, each with the key job.")
        return list(steps)

    def _restrict(self, step: Mapping[str, Any], tables: Sequence[str], beside: Sequence[str]) -> dict[str, Any]:
        options = dict(step.get("options", {}))
        if named := _beside(step):
            options["side_tables"] = [table for table in named if table in beside]
        return {**step, "tables": [table for table in self._tables_of(step) if table in tables], "options": options}

    def _tables_of(self, step: Mapping[str, Any]) -> list[str]:
        own = step.get("tables")
        return table_list(self.tables if own is None else own)


def _beside(step: Mapping[str, Any]) -> list[str]:
    return table_list(step.get("options", {}).get("side_tables", ()))
