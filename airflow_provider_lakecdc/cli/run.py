"""``run``: run one job through its operator, outside any DAG run."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from airflow.utils.platform import getuser

from airflow_provider_lakecdc.cli.running import EXIT_CODES, EXIT_UNKNOWN
from airflow_provider_lakecdc.cli.tables import configuration
from airflow_provider_lakecdc.cli.terminal import print_grid, print_json, print_lines, waiting
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.governance.assess_tables import assess
from airflow_provider_lakecdc.governance.assessment import Steps
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.operators import job_operator
from airflow_provider_lakecdc.operators.base import REPORT_URI_KEY, LakecdcJobOperator
from airflow_provider_lakecdc.operators.plan import PlanOperator, tasks_of
from airflow_provider_lakecdc.submit.failures import one_line
from airflow_provider_lakecdc.submit.reporting import compact, details
from airflow_provider_lakecdc.templates.config import LakeConfig
from airflow_provider_lakecdc.templates.governance import OF_SIDE_TABLES
from lakecdc.contract.errors import InputError, SpecError
from lakecdc.contract.fields import parse, refuse_unknown
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.report import EXIT_BAD_INPUT, EXIT_CONFLICT, EXIT_DONE
from lakecdc.contract.spec import GOVERN, SOURCE_JOBS, loads
from lakecdc.metadata.policy import matching

#: DAG id in the documents folder, in metrics and in the audit
DAG_ID = "lakecdc_run"
# precedence of exit codes (docs/reference/job-contract.md)
_GRAVEST = (EXIT_UNKNOWN, EXIT_BAD_INPUT, EXIT_CONFLICT)
# jobs whose options always belong to single tables
_NAMED_ALONE = ("rebucket",)


@dataclass
class Result:
    """The result of the job.

    :param tables: facts of the reports by table.
    :param reports: URIs of the reports.
    :param errors: failures as in a task's log, a line for each.
    :param codes: exit codes of the failures.
    """

    tables: dict[str, Mapping[str, Any]]
    reports: list[str]
    errors: list[str]
    codes: set[int]

    @property
    def exit_code(self) -> int:
        """Return the exit code of a report with all tables."""
        return next((code for code in _GRAVEST if code in self.codes), EXIT_DONE)


def main(args: Namespace) -> int:
    """Run the job, print its result, and return 0 if it is done, 1 if it failed, 3 for a conflict, 4 for bad input."""
    refuse_unknown({args.job: None}, {*OPTIONS}, "the command")
    if args.job == GOVERN:
        raise SpecError(
            f"{GOVERN} runs a plan of a governance DAG, not a single job.",
            hint="Trigger a governance DAG with one_application, or run the jobs that airflow lakecdc plan shows.",
        )
    config = configuration(args) or LakeConfig(catalog_conn_id=args.catalog)
    options = {**config.options.get(args.job, {}), **loads(args.options)}
    if args.dry_run:
        options["dry_run"] = True
    parse(OPTIONS[args.job], options, "--options")
    result = Result({}, [], [], set())
    has_source = args.job in SOURCE_JOBS
    tasks = _with_source(args, config) if has_source else _governing(args, config, options, result)
    for number, arguments in enumerate(tasks):
        operator = _operator(args.job, config, {**options, **arguments})
        with waiting(f"{args.job} of {len(arguments['tables']) or 'all'} tables"):
            _execute(operator, number, result)
    _print_result(args, result)
    return result.exit_code


def _with_source(args: Namespace, config: LakeConfig) -> Iterator[dict[str, Any]]:
    """Yield the operator's arguments for a job with a source."""
    if not (config.source and config.targets):
        raise SpecError(f"{args.job} needs source and targets from a configuration.", hint="Name one by --config.")
    if config.source.get("type") == "jdbc" and "interval" not in config.source and args.job == "ingest":
        raise SpecError(
            "A source of type 'jdbc' reads the data interval of a DAG run, and this run has none.",
            hint="Trigger the ingest DAG with a logical date, or set start and end in source.interval.",
        )
    fed = [*config.target_tables, *config.fed_tables]
    if unknown := [table for table in args.tables if table not in matching(fed, [table])]:
        raise _unknown_tables(unknown, "The configuration feeds")
    feeding = {"source": config.source, "targets": config.complete_targets, "source_conn_id": config.source_conn_id}
    yield {**feeding, "tables": args.tables}


def _unknown_tables(names: Sequence[str], who: str) -> InputError:
    return InputError(
        f"{who} no table {', '.join(names)}. Nothing was done.",
        hint="Check the spelling; the first run of ingestion creates a target.",
    )


def _governing(
    args: Namespace, config: LakeConfig, options: Mapping[str, Any], result: Result
) -> Iterator[dict[str, Any]]:
    """Yield the operators' arguments as a DAG with this one step plans them; record tables that need nothing."""
    job, named = args.job, args.tables or config.maintained_tables
    if not (named or config.fed_patterns):
        raise SpecError("No table is given.", hint="Name tables by --tables, or a configuration by --config.")
    if job in _NAMED_ALONE:
        own: dict[str, dict[str, Any]] | None = {table: {} for table in named}
    else:
        # a given retention holds for all tables
        own = None if "time_column" in options else config.own_tables(job, options)
    # a quarantine with its own name is cleaned with all tables only
    shared = [] if args.tables else config.quarantine_tables
    beside = {job: shared} if job in OF_SIDE_TABLES else {}
    steps = Steps({job: options}, beside, {} if own is None else {job: own})
    selection = replace(config.selection, tables=tuple(args.tables), fed=()) if args.tables else config.selection
    assessment = assess(
        get_catalog(config.catalog), selection, steps, history=config.history_tables, is_dry=args.dry_run
    )
    absent = [table.table for table in assessment.tables if table.is_absent]
    if absent and args.tables:
        raise _unknown_tables(absent, "The catalog has")
    result.tables |= {name: {"outcome": "skipped", "reason": "The table does not exist yet."} for name in absent}
    plan = PlanOperator(task_id="plan", assessment="", jobs=[job], catalog_conn_id=config.catalog).chosen(assessment)
    for table in assessment.tables:
        if job in table.idle:
            result.tables[table.table] = {"outcome": "nothing", "reason": table.idle[job]}
    for name, error in assessment.unreadable.items():
        result.tables[name] = {"outcome": "failed", "reason": error}
        result.errors.append(f"Cannot assess {name}, so nothing is removed from it: {error}")
        result.codes.add(EXIT_UNKNOWN)
    for left in plan.skipped:
        result.tables[left.table] = {"outcome": "skipped", "reason": left.reason}
    if not (result.tables or plan.chosen):
        raise InputError(
            f"{job} is not allowed on {', '.join(table.table for table in assessment.tables) or ', '.join(named)}.",
            hint="Check policy, retention and checks of the configuration, and the table properties lakecdc.policy.….",
        )
    for task in tasks_of(plan, assessment, [job], config.tables_per_application):
        yield task[job]


def _operator(job: str, config: LakeConfig, arguments: Mapping[str, Any]) -> LakecdcJobOperator:
    operator = job_operator(job)(
        task_id=job,
        catalog_conn_id=config.catalog,
        # resuming needs a further try
        durable=False,
        **{**config.spark.arguments(), **arguments},
    )
    given = {name: getattr(operator, name, None) for name in operator.template_fields}
    if templated := [name for name, value in given.items() if "{{" in json.dumps(value, default=str)]:
        raise SpecError(
            f"The {templated[0]} of {job} contain a template, which only a DAG run renders.",
            hint="Trigger the DAG, or set the value by --options.",
        )
    return operator


def _execute(operator: LakecdcJobOperator, number: int, result: Result) -> None:
    ti = _TaskInstance(operator.task_id, number)
    run = SimpleNamespace(run_type="manual", run_id=ti.run_id, conf={}, triggering_user_name=getuser())
    context: Any = {"ti": ti, "dag_run": run, "outlet_events": {}}
    try:
        # logs are not the command's output
        with redirect_stdout(sys.stderr):
            result.tables |= operator.execute(context)
    except LakecdcJobError as error:
        result.tables |= compact(error.report) if error.report else {}
        result.errors.append(_one_line(error))
        result.codes.add(EXIT_CODES.get(error.failure_class, EXIT_UNKNOWN))
    except KeyboardInterrupt:
        operator.on_kill()
        raise
    if uri := ti.pushed.get(REPORT_URI_KEY):
        result.reports.append(uri)


def _one_line(error: LakecdcJobError) -> str:
    """Format a failure in one line; the table of results has the reasons of tables."""
    if error.report is None or error.report.error:
        return one_line(error)
    remedy = error.hint if error.failure_class != "unknown" else "Use --verbose to see the job's output."
    return f"{error.message.splitlines()[0].rstrip(':')}. {remedy}"


class _TaskInstance(SimpleNamespace):
    """The parts of a task instance that operators use."""

    def __init__(self, task_id: str, number: int) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        ids = {"dag_id": DAG_ID, "run_id": f"manual__{now}", "task_id": task_id, "map_index": number, "try_number": 1}
        super().__init__(**ids, stats_tags={"dag_id": DAG_ID, "task_id": task_id}, pushed={})

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = value


def _print_result(args: Namespace, result: Result) -> None:
    if args.json:
        document = {"job": args.job, "tables": result.tables, "errors": result.errors, "reports": result.reports}
        print_json(document)
        return
    if result.tables:
        headings = {"table": "left", "outcome": "left", "core-s": "right", "details": "left"}
        print_grid(headings, (_row(name, facts) for name, facts in result.tables.items()))
    print_lines("", *(f"report at {uri}" for uri in result.reports), *result.errors)


def _row(name: str, facts: Mapping[str, Any]) -> list[str]:
    core_seconds = facts.get("metrics", {}).get("core_seconds")
    return [name, facts["outcome"], "-" if core_seconds is None else f"{core_seconds:,.2f}", details(facts)]
