"""What governance would do now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow_provider_lakecdc.page.lakes import Lake


def plan_of(lake: Lake, dag: str) -> dict[str, Any]:
    """What the plan of a governance DAG tells: that of ``airflow lakecdc plan``.

    :param dag: ``hourly``, ``nightly`` or ``weekly``.
    """
    if lake.config is None:
        return {"planned": None}
    # imports all operators, which takes a while
    from airflow_provider_lakecdc.governance.planning import planned

    return {"planned": planned(lake.config, dag), "looked_at": datetime.now(UTC)}
