"""Rows of the two tables. The annotations become the columns' docs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Annotated, Any


@dataclass(frozen=True)
class AuditRow:
    """What one step of a Spark application did to one table. Snapshot ids are text, as in reports."""

    row_id: Annotated[str, "the application and a number"]
    application: Annotated[str, "id of the application, also lakecdc.commit-id of the snapshot that its rows came with"]
    job: Annotated[str, "the job, or the step of a job of several steps"]
    table: Annotated[str, "namespace.name"]
    started_at: Annotated[datetime, "when the job began; without a report, when it was submitted"]
    finished_at: Annotated[datetime, "when the job ended; the rows are partitioned by its day (UTC)"]
    outcome: Annotated[str, "done, nothing, skipped, unsupported, conflict or failed"]
    is_dry_run: Annotated[bool, "nothing was changed, whatever the outcome says"]
    dag_id: Annotated[str, "DAG that the application belongs to"]
    run_id: Annotated[str, "its run"]
    task_id: Annotated[str, "its task"]
    try_number: Annotated[int, "the task's try"]
    map_index: Annotated[int | None, "of a mapped task"] = None
    owner: Annotated[str | None, "owner of the task"] = None
    triggering_user_name: Annotated[str | None, "who triggered the run, if any user did"] = None
    spark_application_id: Annotated[str | None, "as Spark calls the application"] = None
    failure_class: Annotated[str | None, "conflict, bad input, cluster or unknown"] = None
    reason: Annotated[str | None, "why, unless it is plainly done"] = None
    snapshot_before: Annotated[str | None, "id of the head before"] = None
    snapshot_after: Annotated[str | None, "id of the head after"] = None
    predicted_core_seconds: Annotated[float | None, "core_seconds that the plan expected"] = None
    guessed_core_seconds: Annotated[float | None, "the same before it was corrected by what jobs have taken"] = None
    core_seconds: Annotated[float | None, "CPU seconds of Spark's tasks"] = None
    bytes_read: Annotated[int | None, "bytes of the files that were rewritten"] = None
    bytes_written: Annotated[int | None, "bytes of all new files"] = None
    proof: Annotated[str | None, "what was proven before the commit, or why it was not"] = None
    metrics: Annotated[Mapping[str, Any], "all metrics of the report, as JSON"] = field(default_factory=dict)


@dataclass(frozen=True)
class HealthRow:
    """A table's health at one time, see ``lakecdc.metadata.health.TableHealth``."""

    row_id: Annotated[str, "the measurement and a number"]
    table: Annotated[str, "namespace.name"]
    measured_at: Annotated[datetime, "when it was measured; the rows are partitioned by its day (UTC)"]
    score: Annotated[float, "from 100, nothing to gain, down to 0"]
    lost: Annotated[Mapping[str, Any], "points that the score lacks, by reason, as JSON"] = field(default_factory=dict)
    data_files: Annotated[int | None, "live data files"] = None
    data_bytes: Annotated[int | None, "their bytes"] = None
    delete_file_reads: Annotated[
        int | None, "delete files that a scan of the table applies, each once for every data file that it applies to"
    ] = None
    delete_read_cost: Annotated[
        float | None, "the same, position deletes counted a fifth and deletion vectors a twentieth"
    ] = None
    equality_delete_files: Annotated[int | None, "live files of equality deletes"] = None
    position_delete_files: Annotated[int | None, "live files of position deletes"] = None
    deletion_vectors: Annotated[int | None, "live deletion vectors"] = None
    snapshots: Annotated[int | None, "snapshots that the table keeps"] = None
    manifests: Annotated[int | None, "manifests of the head"] = None
    facts: Annotated[Mapping[str, Any], "all else that was measured, as JSON"] = field(default_factory=dict)

    @classmethod
    def of(cls, row_id: str, table: str, measured_at: datetime, facts: Mapping[str, Any]) -> HealthRow:
        """Create a row from :meth:`lakecdc.metadata.health.TableHealth.facts`, perhaps with further keys."""
        own = {name: value for name, value in facts.items() if name in _MEASURED}
        return cls(row_id, table, measured_at, **own, facts={n: v for n, v in facts.items() if n not in _MEASURED})

    @classmethod
    def of_all(cls, id: str, measured_at: datetime, facts: Mapping[str, Mapping[str, Any]]) -> list[HealthRow]:
        """Create the rows of one measurement of several tables; facts are by table."""
        return [cls.of(f"{id}/{number}", table, measured_at, facts[table]) for number, table in enumerate(facts)]

    def as_facts(self) -> dict[str, Any]:
        """Return the facts that :meth:`of` was created from."""
        return {**{name: getattr(self, name) for name in _MEASURED}, **self.facts}


# columns that are facts of the measurement
_MEASURED = [each.name for each in fields(HealthRow) if each.name not in ("row_id", "table", "measured_at", "facts")]
