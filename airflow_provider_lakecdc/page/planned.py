"""Plans of governance DAGs, which take long and are kept for a while."""

from __future__ import annotations

from datetime import UTC, datetime
from threading import Lock
from typing import Any

from cachetools import TTLCache

from airflow_provider_lakecdc.page.lakes import Lake

_MOST = 64


class Plans:
    """A cache of planned runs; a plan is for everybody who may see its lake.

    :param seconds: lifetime of a plan.
    """

    def __init__(self, seconds: float) -> None:
        self._planned: TTLCache[tuple[str, str], dict[str, Any]] = TTLCache(_MOST, seconds)
        self._lock = Lock()

    def read(self, lake: Lake, dag: str) -> dict[str, Any]:
        """Return the template's values of a planned run, None without a configuration."""
        if lake.config is None:
            return {"planned": None}
        # importing all operators is slow
        from airflow_provider_lakecdc.templates.planning import plan_run

        with self._lock:
            key = (lake.name, dag)
            if key not in self._planned:
                self._planned[key] = {"planned": plan_run(lake.config, dag), "looked_at": datetime.now(UTC)}
            return self._planned[key]
