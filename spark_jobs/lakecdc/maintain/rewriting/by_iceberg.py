"""Rewrite by Iceberg's own reader and writer, if tasks cannot."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation

from lakecdc.iceberg.bloom_columns import bloom_filter_properties
from lakecdc.iceberg.definition import current_spec_id
from lakecdc.iceberg.rewrite_tasks import output_tasks, read_in_sequence, read_staged, rewrite_session
from lakecdc.iceberg.staging import stage_rows, staged_tasks
from lakecdc.maintain import verify_rows
from lakecdc.maintain.arrange import arrange
from lakecdc.maintain.rewriting.written import Written

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lakecdc.iceberg.table import IcebergTable
    from lakecdc.maintain.rewrite import RewritePlan
    from lakecdc.maintain.selection import Unit
    from lakecdc.maintain.verify_rows import Fingerprint, Proof

log = logging.getLogger(__name__)


class IcebergRewrite:
    """Rewrite the units of a plan as a Spark frame.

    :param bloom_filters: columns with Bloom filters in the new files.
    """

    def __init__(self, table: IcebergTable, plan: RewritePlan, proof: Proof, bloom_filters: Sequence[str]) -> None:
        self._table, self._plan, self._proof, self._bloom_filters = table, plan, proof, bloom_filters
        self._session = rewrite_session(table.spark)

    def write(self, units: Sequence[Unit], tasks: Mapping[str, Any]) -> Written:
        """Write the files of units, which are either all in sequence or none.

        :param tasks: scan tasks by location.
        """
        observation = Observation()
        with ExitStack() as stack:
            if units[0].in_sequence:
                parts = [[tasks[file.location] for file in unit.files] for unit in units]
                groups = [stack.enter_context(staged_tasks(self._table, part)) for part in parts]
                rows = self._observed(read_in_sequence(self._session, groups), observation)
            else:
                group = stack.enter_context(staged_tasks(self._table, list(tasks.values())))
                plain = read_staged(self._session, group)
                rows = arrange(
                    self._observed(plain, observation), units, self._plan.order, plain, self._plan.partitions_by
                )
            files = stage_rows(
                self._table,
                rows.drop("_lakecdc_hash"),
                properties=bloom_filter_properties(self._table, self._bloom_filters),
                output_spec_id=current_spec_id(self._table),
                # rows sorted by partition need only one open file per task
                fanout_enabled=None if not self._plan.partitions_by else "false",
                # the plan fixes the number of files; a file rolls over only if the estimate is far off
                target_file_size_bytes=2 * self._plan.target,
                # a table created with a sort order does not have order 0
                output_sort_order_id=self._plan.order.id or None,
            )
        observed = verify_rows.fingerprint(dict(observation.get))
        return Written(files, partial(self._prove, list(tasks.values()), files, observed))

    def _observed(self, rows: DataFrame, observation: Any) -> DataFrame:
        return self._proof.hashed(rows).observe(observation, *self._proof.measures())

    def _prove(self, tasks: Sequence[Any], files: Sequence[Any], observed: Fingerprint) -> None:
        if not self._proof.columns:
            return
        written = self._read_back(output_tasks(self._table, files)) if files else verify_rows.NO_ROWS
        if written != observed:
            # a task retried after the loss of an executor is observed twice
            log.warning("%s: rereading the rewritten rows for the proof", self._table.name)
            verify_rows.check(self._table.name, self._read_back(tasks), written)

    def _read_back(self, tasks: Sequence[Any]) -> Fingerprint:
        with staged_tasks(self._table, tasks) as group:
            return verify_rows.read_back(read_staged(self._session, group), self._proof)
