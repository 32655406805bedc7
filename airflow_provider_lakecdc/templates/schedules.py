"""When the DAGs run, as the configuration says it."""

from __future__ import annotations

from dataclasses import dataclass, field

from croniter import croniter

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_zone, refuse_unknown
from lakecdc.metadata.debt import DebtLimits

DAGS = ("ingest", "hourly_governance", "nightly_governance", "weekly_governance")
#: the DAG that runs when somebody triggers it alone
REPLAY = "replay_quarantine"
#: stands among assets for those of the tables that the DAGs maintain
TABLES = "tables"
# Airflow's own words for cron expressions
_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")


@dataclass(frozen=True)
class Schedules:
    """When the DAGs run: by the clock, as cron expressions of which None is never, after events of assets, or both.

    :param ingest: schedule of the ingest DAG; a run follows the end of its interval.
    :param hourly_governance: schedule of delete-file rewriting and light compaction.
    :param nightly_governance: schedule of sorting, compaction, manifests, expiry and side tables.
    :param weekly_governance: schedule of the expiry of old rows, the search for orphan files and the statistics.
    :param timezone: zone the expressions are read in.
    :param assets: by DAG, URIs of assets of which any event starts a run, besides the clock; ``tables`` stands for the
        tables that are maintained, whose events the ingest DAG raises.
    :param debt: limits of delete files; the hourly DAG runs as soon as a table is above one, instead of by the clock.
    """

    ingest: str | None = "0 * * * *"
    hourly_governance: str | None = "30 * * * *"
    nightly_governance: str | None = "10 2 * * *"
    weekly_governance: str | None = "20 4 * * 0"
    timezone: str = "UTC"
    assets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    debt: DebtLimits | None = None

    def __post_init__(self) -> None:
        for dag in DAGS:
            cron = getattr(self, dag)
            if cron is not None and cron not in _PRESETS and not croniter.is_valid(cron):
                raise SpecError(
                    f"schedules.{dag} is {cron!r}, which is no cron expression.",
                    hint='Write minute, hour, day of month, month, day of week, such as "30 * * * *"; null is never.',
                )
        check_zone(self.timezone, "schedules.timezone")
        self._check_assets()

    def _check_assets(self) -> None:
        refuse_unknown(self.assets, {*DAGS}, "schedules.assets")
        for dag, names in self.assets.items():
            for name in names:
                if name != TABLES and "://" not in name:
                    raise SpecError(
                        f"schedules.assets.{dag} has {name!r}, which is no URI of an asset.",
                        hint=f'Write one such as "s3://landing/orders", or "{TABLES}".',
                    )
        if TABLES in self.assets.get("ingest", ()):
            raise SpecError(
                "schedules.assets.ingest has the tables that ingestion writes: each run would start the next.",
                hint="Name assets of the source.",
            )
        if self.debt and self.assets.get("hourly_governance"):
            raise SpecError(
                "schedules has debt and assets for hourly_governance.", hint="Keep one: both say when it runs."
            )
