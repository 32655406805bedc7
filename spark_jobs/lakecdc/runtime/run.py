"""Run a job: read the spec, open the session, process the tables, write the report, exit.

The report is always written; the exit code is for display.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from lakecdc.contract import report as reports
from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.report import JobReport, TableReport
from lakecdc.contract.runtime import EVENT_LOG, SPARK_UI, source_packages
from lakecdc.contract.secrets import mask, without_values
from lakecdc.contract.spec import JobSpec, loads, parse_spec
from lakecdc.iceberg.core_time import CoreTime
from lakecdc.metadata.names import APPLICATION_PREFIX
from lakecdc.runtime import documents
from lakecdc.runtime.executors import check_executors
from lakecdc.runtime.progress import ProgressLog, log_long_stages
from lakecdc.runtime.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakecdc.iceberg.table import IcebergTable

log = logging.getLogger(__name__)

Work = Callable[["SparkSession", JobSpec], list[TableReport]]
TableWork = Callable[["IcebergTable", JobSpec], TableReport]

#: location of each job's function, imported when the job starts
WORK = {
    "ingest": "lakecdc.ingest.job:ingest",
    "replay_quarantine": "lakecdc.ingest.job:ingest",
    "reconcile": "lakecdc.reconcile.job:reconcile",
    "restore_moment": "lakecdc.moments.job:restore_moment",
    "govern": "lakecdc.maintain.govern:govern",
}
#: locations for jobs that process one table after another; a class is instantiated per run
TABLE_WORK = {
    "rewrite_delete_files": "lakecdc.maintain.delete_files.job:rewrite_delete_files",
    "sort_data_files": "lakecdc.maintain.sort:sort_data_files",
    "compact_data_files": "lakecdc.maintain.compact:compact_data_files",
    "rebucket": "lakecdc.maintain.rebucket:rebucket",
    "rewrite_manifests": "lakecdc.maintain.manifests:rewrite_manifests",
    "compute_statistics": "lakecdc.maintain.statistics:compute_statistics",
    "tag_snapshots": "lakecdc.maintain.tag:tag_snapshots",
    "expire_snapshots": "lakecdc.maintain.expire:expire_snapshots",
    "expire_partitions": "lakecdc.maintain.expire_partitions:expire_partitions",
    "remove_orphan_files": "lakecdc.maintain.orphans.job:RemoveOrphanFiles",
    "clean_side_tables": "lakecdc.maintain.side_tables:clean_side_tables",
    "rollback_tables": "lakecdc.maintain.rollback:rollback_tables",
    "set_readers": "lakecdc.maintain.set_readers:set_readers",
    "scd2": "lakecdc.dimensions.job:scd2",
    "rebuild_keys": "lakecdc.ingest.aggregating.table:rebuild_keys",
    "erase_rows": "lakecdc.erase.job:erase_rows",
    "export_changes": "lakecdc.export.job:export_changes",
    "check_tables": "lakecdc.maintain.check:check_tables",
}


class MaskingFormatter(logging.Formatter):
    """Formatter that masks secrets in whole lines, since other libraries' messages contain passwords in URLs."""

    def format(self, record: logging.LogRecord) -> str:
        return mask(super().format(record))


def log_handler() -> logging.Handler:
    """Create the handler of a job's log, on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(MaskingFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler


def work_of(job: str) -> Work:
    """Return a job's function, called with the session and the spec."""
    if job in WORK:
        return resolve_name(WORK[job])
    work = resolve_name(TABLE_WORK[job])
    return each_table(work() if isinstance(work, type) else work)


def main(job: str, argv: list[str] | None = None) -> int:
    """Run a job from the command line.

    :return: the exit code: 0 fine, 3 conflict, 4 bad input, 1 anything else.
    """
    parser = argparse.ArgumentParser(prog=job, description=f"lakecdc job {job} (job contract version 1)")
    parser.add_argument("--spec", required=True, help="URI of the job spec, JSON")
    parser.add_argument("--report", required=True, help="URI the report is written to")
    # AWS Glue adds arguments
    arguments, _ = parser.parse_known_args(argv)
    logging.basicConfig(level=logging.INFO, handlers=[log_handler()])
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # lakecdc reports what Spark refuses, in one line
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    started, spec = reports.now(), None
    try:
        spec = parse_spec(loads(documents.read_text(arguments.spec)), job)
        report = run(spec.reported_to(documents.folder_of(arguments.report)), work_of(job), started)
    except Exception as error:
        report = _stopped(job, started, error)
    documents.write_text(arguments.report, report.to_json())
    code = report.exit_code(spec.options.fail_on if spec else ())
    _log_result(report, code)
    return code


def run(spec: JobSpec, work: Work, started: str | None = None) -> JobReport:
    """Run a job in this process; ``started`` is its ISO-8601 start time, default now."""
    started = started or reports.now()
    try:
        spark = open_session(spec.catalog, f"{APPLICATION_PREFIX}{spec.job}", source_packages(spec.source))
        _log_pages(spark)
        check_executors(spark, getattr(spec.source, "type", None))
        core_time = CoreTime(spark)
        with log_long_stages(spark.sparkContext, core_time):
            tables = work(spark, spec)
        tables = _with_core_seconds(tables, core_time)
        application = spark.sparkContext.applicationId
    except Exception as error:
        return _stopped(spec.job, started, error)
    return JobReport(spec.job, started, reports.now(), application, tuple(tables))


def _with_core_seconds(tables: Sequence[TableReport], core_time: CoreTime) -> list[TableReport]:
    """Share the application's CPU time among the tables that were not measured alone, by their events and rows."""
    shares = [
        0 if "core_seconds" in table.metrics or table.outcome == "skipped" else 1 + _rows(table.metrics)
        for table in tables
    ]
    measured = _measure(core_time) if any(shares) else {}
    if not measured:
        return [*tables]
    seconds = measured["core_seconds"] - sum(table.metrics.get("core_seconds", 0.0) for table in tables)
    return [
        replace(table, metrics={**table.metrics, "core_seconds": round(max(seconds, 0.0) * share / sum(shares), 3)})
        if share
        else table
        for table, share in zip(tables, shares, strict=True)
    ]


def _measure(core_time: CoreTime) -> dict[str, float]:
    """Return the metric ``core_seconds``; nothing if Spark has been stopped."""
    try:
        return {"core_seconds": round(core_time.seconds(), 3)}
    except Exception:
        # reports matter more
        log.warning("Cannot measure the CPU time of Spark's tasks.", exc_info=True)
        return {}


def _rows(metrics: Mapping[str, Any]) -> int:
    counts = (n for name, n in metrics.items() if name in ("rows_written", "rows_source") or name.startswith("events_"))
    return sum(n for n in counts if isinstance(n, int))


def _log_pages(spark: SparkSession) -> None:
    """Log where users see the application while it runs, and whether they can see it afterwards."""
    context = spark.sparkContext
    if address := context.uiWebUrl:
        log.info("%s%s", SPARK_UI, address)
    if spark.conf.get("spark.eventLog.enabled", "false") == "true":
        log.info("%s%s", EVENT_LOG, context.applicationId)


def each_table(do: TableWork) -> Work:
    """Return work that applies a function to one table after another; a failed table does not stop the others.

    Each table's current policy applies (``lakecdc.maintain.protected``). Side tables come last, and missing ones have
    no report. Each report has the numbers of its table before and after (``lakecdc.maintain.numbers``).
    """

    def work(spark: SparkSession, spec: JobSpec) -> list[TableReport]:
        from lakecdc.iceberg.table import IcebergTable, exists
        from lakecdc.iceberg.threads import described
        from lakecdc.maintain.numbers import with_numbers
        from lakecdc.maintain.protected import apply_policy

        def one(name: str) -> TableReport | None:
            core_time = CoreTime(spark)
            try:
                if name not in spec.tables and not exists(spark, spec.catalog.name, name):
                    return None
                table = IcebergTable(spark, spec.catalog.name, name)
                result = do(table, apply_policy(table, spec))
                return with_numbers(table, result, spec.job, core_time.seconds())
            except Exception as error:
                return replace(failure(name, error), metrics=_measure(core_time))

        names, results = list(dict.fromkeys((*spec.tables, *spec.side_tables))), []
        # a single table has its own log lines
        progress = ProgressLog(spec.job, "tables", len(names)) if len(names) > 1 else None
        for name in names:
            with described(spark, name, spec.job):
                result = one(name)
            if result is not None:
                reports.log_tables(log.log, [result])
                results.append(result)
            if progress:
                progress.add(1)
        return results

    return work


def failure(table: str, error: Exception, *, values: bool = False) -> TableReport:
    """Report a table's failure, with the row's value if ``values``; log a trace of unexpected errors."""
    error = _ours(error, table)
    kind, text = _explained(error, values)
    if not isinstance(error, LakecdcError):
        if values or kind != "bad input":
            log.error("%s: %s", table, type(error).__name__, exc_info=error)
        return TableReport(table, "failed", text, kind)
    return TableReport.failure(table, error)


def _ours(error: Exception, table: str | None = None) -> Exception:
    """Return the lakecdc error behind an exception, or the exception itself."""
    from lakecdc.iceberg.explain import as_ours

    return error if isinstance(error, LakecdcError) else as_ours(error, table) or error


def _explained(error: Exception, values: bool = False) -> tuple[str, str]:
    """Return the class and text of a failure."""
    from lakecdc.iceberg.explain import explain

    if isinstance(error, LakecdcError):
        return error.failure_class, str(error)
    cause = explain(error)
    if cause is None:
        return "unknown", reports.describe(error)
    if cause.bad_data:
        why = cause.text if values else f"{without_values(cause.text)} The option report_values shows the value."
        return "bad input", f"A value of the source does not fit its column; nothing was written: {why}"
    return "unknown", cause.text


def _stopped(job: str, started: str, error: Exception) -> JobReport:
    error = _ours(error)
    if not isinstance(error, LakecdcError):
        log.error("%s stopped", job, exc_info=error)
    kind, text = _explained(error)
    return JobReport(job, started, reports.now(), error=text, failure_class=kind)


def _log_result(report: JobReport, code: int) -> None:
    """Log the result last; unlike printed lines, log lines are not mistaken for Spark's."""
    # other jobs have logged each table when it was done
    if report.job in WORK and report.job != "govern":
        reports.log_tables(log.log, report.tables)
    if report.error:
        log.error("%s: %s", report.job, report.error)
    log.info("%s: exit code %d", report.job, code)
