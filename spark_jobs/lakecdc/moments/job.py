"""The state of several tables at one moment of their source, each as a branch or a table of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lakecdc.contract.past import RestoreMomentOptions
from lakecdc.contract.report import TableReport
from lakecdc.iceberg.stages import described
from lakecdc.iceberg.table import IcebergTable
from lakecdc.metadata.names import quarantine_of
from lakecdc.moments.events import batch_of
from lakecdc.moments.restored import Shown, note_of, restore, restored_before, rows_of
from lakecdc.moments.stretch import Stretch, stretch_to
from lakecdc.moments.table import MomentTable
from lakecdc.runtime.run import each_table, failure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.contract.spec import JobSpec
    from lakecdc.ingest.change import TableBatch


def restore_moment(spark: SparkSession, spec: JobSpec) -> list[TableReport]:
    """Restore a moment of the spec's tables, all or none: each is judged before the first one is written.

    :raises SpecError: nobody has named a moment.
    """
    options = spec.options
    assert isinstance(options, RestoreMomentOptions)
    moment, branch = options.restored()
    shown = Shown(branch, options.keep_for)
    found: dict[str, _Found] = {}
    refused: dict[str, TableReport] = {}
    for name in dict.fromkeys(spec.tables):
        try:
            quarantine = quarantine_of(name, options.quarantine_table)
            table = IcebergTable(spark, spec.catalog.name, name)
            with described(spark, name, spec.job):
                stretch = stretch_to(table, options.history_tables.get(name), moment, quarantine)
                into = MomentTable(table, options.into[name]) if name in options.into else None
                before = into.note if into else restored_before(stretch, shown)
                found[name] = _Found(stretch, *batch_of(stretch), into, before)
        except Exception as error:
            refused[name] = failure(name, error)
    if refused:
        reason = f"nothing was restored, because of {', '.join(refused)}"
        return [refused.get(name) or TableReport(name, "skipped", reason) for name in dict.fromkeys(spec.tables)]
    return each_table(partial(_restore, found, shown))(spark, spec)


@dataclass(frozen=True)
class _Found:
    """What a moment of a table is made of.

    :param batch: the events that the base lacks.
    :param events: how many they are.
    :param into: the table that is to hold it; None if a branch is.
    :param before: what either says of the moment that it holds already; None if there is none.
    """

    stretch: Stretch
    batch: TableBatch
    events: int
    into: MomentTable | None
    before: str | None


def _restore(found: Mapping[str, _Found], shown: Shown, table: IcebergTable, spec: JobSpec) -> TableReport:
    made_of, head = found[table.name], table.head()
    stretch, note = made_of.stretch, note_of(made_of.stretch, made_of.events)
    metrics: dict[str, Any] = {
        "base_snapshot": str(stretch.base.id),
        "base_read_through": stretch.position.read_through,
        "events_restored": made_of.events,
        **({"into": made_of.into.name} if made_of.into else {"branch": shown.branch, "tag": shown.tag}),
    }
    # main stays as it is
    at = str(head.id) if head else None
    report = TableReport(table.name, "nothing", snapshot_before=at, snapshot_after=at, metrics=metrics)
    if spec.options.dry_run:
        return replace(report, reason="dry run: nothing was changed")
    if made_of.before == note:
        return replace(report, reason="the moment has been restored already")
    if made_of.into is None:
        metrics["snapshot"] = str(restore(stretch, made_of.batch, note, shown).id)
    else:
        with rows_of(stretch, made_of.batch) as rows:
            metrics |= made_of.into.write(rows, stretch, note)
    return replace(report, outcome="done")
