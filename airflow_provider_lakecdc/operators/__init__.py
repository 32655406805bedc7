"""Operators, one per job."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


def job_operator(job: str) -> type[LakecdcJobOperator]:
    """Return the class of a job's operator, in the module of the job's name."""
    classes = vars(import_module(f"{__name__}.{job}")).values()
    operator: type[LakecdcJobOperator] = next(each for each in classes if getattr(each, "job_name", None) == job)
    return operator
