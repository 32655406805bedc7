"""State of several tables at one moment of their source, each as a branch or a separate table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from lakecdc.contract.past import RestoreMomentOptions
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import JobSpec
from lakecdc.iceberg.table import IcebergTable
from lakecdc.iceberg.threads import described
from lakecdc.ingest.api import Batch
from lakecdc.maintain.reports import DRY_RUN, ends
from lakecdc.metadata.names import quarantine_of
from lakecdc.moments.events import batch_of
from lakecdc.moments.restored import Shown, note_of, restore, restored_before, rows_of
from lakecdc.moments.stretch import Stretch, stretch_to
from lakecdc.moments.table import MomentTable
from lakecdc.runtime.run import each_table, failure


def restore_moment(spark: SparkSession, spec: JobSpec) -> list[TableReport]:
    """Restore a moment of the spec's tables, all or none: each is checked before the first one is written.

    :raises SpecError: no moment is given.
    """
    options = spec.options
    assert isinstance(options, RestoreMomentOptions)
    moment, branch = options.restored()
    shown = Shown(branch, options.keep_for)
    planned: dict[str, _Plan] = {}
    refused: dict[str, TableReport] = {}
    for name in dict.fromkeys(spec.tables):
        try:
            quarantine = quarantine_of(name, options.quarantine_table)
            table = IcebergTable(spark, spec.catalog.name, name)
            with described(spark, name, spec.job):
                stretch = stretch_to(table, options.history_tables.get(name), moment, quarantine)
                into = MomentTable(table, options.into[name]) if name in options.into else None
                before = into.note if into else restored_before(stretch, shown)
                planned[name] = _Plan(stretch, *batch_of(stretch), into, before)
        except Exception as error:
            refused[name] = failure(name, error)
    if refused:
        reason = f"nothing was restored, because of {', '.join(refused)}"
        return [refused.get(name) or TableReport(name, "skipped", reason) for name in dict.fromkeys(spec.tables)]
    return each_table(partial(_restore, planned, shown))(spark, spec)


@dataclass(frozen=True)
class _Plan:
    """A table's part in a restored moment: the events missing from the base, and the moment already there."""

    stretch: Stretch
    batch: Batch
    events: int
    into: MomentTable | None
    before: str | None


def _restore(planned: Mapping[str, _Plan], shown: Shown, table: IcebergTable, spec: JobSpec) -> TableReport:
    plan, head = planned[table.name], table.head()
    stretch, note = plan.stretch, note_of(plan.stretch, plan.events)
    metrics: dict[str, Any] = {
        "base_snapshot": str(stretch.base.id),
        "base_read_through": stretch.position.read_through,
        "events_restored": plan.events,
        **({"into": plan.into.name} if plan.into else {"branch": shown.branch, "tag": shown.tag}),
    }
    # main stays as it is
    report = TableReport(table.name, "nothing", **ends(head, head), metrics=metrics)
    if spec.options.dry_run:
        return replace(report, reason=DRY_RUN)
    if plan.before == note:
        return replace(report, reason="the moment has been restored already")
    if plan.into is None:
        metrics["snapshot"] = str(restore(stretch, plan.batch, note, shown).id)
    else:
        with rows_of(stretch, plan.batch) as rows:
            metrics |= plan.into.write(rows, stretch, note)
    return replace(report, outcome="done")
