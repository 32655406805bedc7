"""Schedules of the DAGs in the configuration."""

from __future__ import annotations

from dataclasses import dataclass, field

from croniter import croniter

from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import check_zone, refuse_unknown
from lakecdc.metadata.debt import DebtLimits

DAGS = ("ingest", "hourly_governance", "nightly_governance", "weekly_governance")
#: the DAG without a schedule
REPLAY = "replay_quarantine"
#: placeholder in ``assets`` for the maintained tables
TABLES = "tables"
# cron presets of Airflow
_PRESETS = ("@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")


@dataclass(frozen=True)
class Schedules:
    """Schedules of the DAGs: cron expressions (None means never), asset events, or both.

    :param ingest: schedule of the ingest DAG; a run starts at the end of its interval.
    :param hourly_governance: schedule of delete-file rewriting and light compaction.
    :param nightly_governance: schedule of sorting, compaction, manifests, snapshot expiry and side tables.
    :param weekly_governance: schedule of row expiry, orphan files and statistics.
    :param timezone: time zone of the expressions.
    :param assets: by DAG, URIs of assets whose events start a run, besides the schedule; ``tables`` means the
        maintained tables, whose events the ingest DAG raises.
    :param debt: limits of delete files; the hourly DAG runs when a table exceeds one, instead of by the clock.
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
                    f"schedules.{dag} {cron!r} is not a cron expression.",
                    hint='Use minute, hour, day of month, month, day of week, such as "30 * * * *", or null for never.',
                )
        check_zone(self.timezone, "schedules.timezone")
        self._check_assets()

    def _check_assets(self) -> None:
        refuse_unknown(self.assets, {*DAGS}, "schedules.assets")
        for dag, names in self.assets.items():
            for name in names:
                if name != TABLES and "://" not in name:
                    raise SpecError(
                        f"schedules.assets.{dag} has {name!r}, which is not an asset URI.",
                        hint=f'Use a URI such as "s3://landing/orders", or "{TABLES}".',
                    )
        if TABLES in self.assets.get("ingest", ()):
            raise SpecError(
                "schedules.assets.ingest has the tables that ingestion writes, so each run would start the next.",
                hint="Use assets of the source.",
            )
        if self.debt and self.assets.get("hourly_governance"):
            raise SpecError("schedules has both debt and assets for hourly_governance.", hint="Remove one of them.")
