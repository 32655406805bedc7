"""The current plan of governance."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow_provider_lakecdc.page.lakes import Lake


def plan_of(lake: Lake, dag: str) -> dict[str, Any]:
    """Return the template's values of a governance DAG's plan, as of ``airflow lakecdc plan``.

    :param dag: ``hourly``, ``nightly`` or ``weekly``.
    """
    if lake.config is None:
        return {"planned": None}
    # importing all operators is slow
    from airflow_provider_lakecdc.governance.planning import plan_run

    return {"planned": plan_run(lake.config, dag), "looked_at": datetime.now(UTC)}
