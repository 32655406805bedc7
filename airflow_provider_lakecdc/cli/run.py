"""``run``: one job through its operator, outside any DAG run."""

from __future__ import annotations

import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from airflow.utils.platform import getuser

from airflow_provider_lakecdc.cli.running import EXIT_CODES, EXIT_UNKNOWN
from airflow_provider_lakecdc.cli.tables import configuration
from airflow_provider_lakecdc.cli.terminal import print_grid, print_json, print_lines, waiting
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.operators.assess_tables import AssessTablesOperator
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

#: what stands for the id of a DAG in the folder of documents, in metrics and in the audit
DAG_ID = "lakecdc_run"
# which of several exit codes a report has (docs/job-contract.md)
_GRAVEST = (EXIT_UNKNOWN, EXIT_BAD_INPUT, EXIT_CONFLICT)
# tables that a job is for alone, because nothing of it goes for all
_NAMED_ALONE = ("rebucket",)


@dataclass
class Result:
    """What came of the job.

    :param tables: facts of the report by table.
    :param reports: URIs of the reports.
    :param errors: failures as a task's log tells them, a line for each.
    :param codes: exit codes of the failures.
    """

    tables: dict[str, Mapping[str, Any]]
    reports: list[str]
    errors: list[str]
    codes: set[int]

    @property
    def exit_code(self) -> int:
        """That of a report with all tables."""
        return next((code for code in _GRAVEST if code in self.codes), EXIT_DONE)


def main(asked: Namespace) -> int:
    """Run the job and print what came of it.

    :return: 0 done, 1 failed, 3 a conflict, 4 bad input.
    """
    refuse_unknown({asked.job: None}, {*OPTIONS}, "the command")
    if asked.job == GOVERN:
        raise SpecError(
            f"{GOVERN} does what a plan of a DAG run names.",
            hint="Trigger a governance DAG with one_application, or run the jobs that airflow lakecdc plan tells.",
        )
    config = configuration(asked) or LakeConfig(catalog_conn_id=asked.catalog)
    options = {**config.options.get(asked.job, {}), **loads(asked.options)}
    if asked.dry_run:
        options["dry_run"] = True
    parse(OPTIONS[asked.job], options, "--options")
    result = Result({}, [], [], set())
    has_source = asked.job in SOURCE_JOBS
    tasks = _with_source(asked, config) if has_source else _governing(asked, config, options, result)
    for number, arguments in enumerate(tasks):
        operator = _operator(asked.job, config, {**options, **arguments})
        with waiting(f"{asked.job} of {len(arguments['tables']) or 'all'} tables"):
            _execute(operator, number, result)
    _tell(asked, result)
    return result.exit_code


def _with_source(asked: Namespace, config: LakeConfig) -> Iterator[dict[str, Any]]:
    """Arguments of the operator of a job that has a source."""
    if not (config.source and config.targets):
        raise SpecError(
            f"{asked.job} needs source and targets, which a configuration has.", hint="Name one by --config."
        )
    if config.source.get("type") == "jdbc" and "interval" not in config.source and asked.job == "ingest":
        raise SpecError(
            "A source of type 'jdbc' is read by the data interval of a DAG run, and there is none.",
            hint="Trigger the ingest DAG with a logical date, or give source.interval its start and end.",
        )
    fed = [*config.target_tables, *config.fed_tables]
    if unknown := [table for table in asked.tables if table not in matching(fed, [table])]:
        raise _unknown_tables(unknown, "The configuration feeds")
    feeding = {"source": config.source, "targets": list(config.targets), "source_conn_id": config.source_conn_id}
    yield {**feeding, "tables": asked.tables}


def _unknown_tables(names: Sequence[str], who: str) -> InputError:
    return InputError(
        f"{who} no table {', '.join(names)}.",
        hint="Check the spelling; the first run of ingestion creates a target. Nothing was done.",
    )


def _governing(
    asked: Namespace, config: LakeConfig, options: Mapping[str, Any], result: Result
) -> Iterator[dict[str, Any]]:
    """Arguments of the operators, as a DAG with this one step has them planned; what needs nothing is in the result."""
    job, named = asked.job, asked.tables or config.maintained_tables
    if not (named or config.fed_patterns):
        raise SpecError("Nobody has said which tables.", hint="Name them by --tables, or a configuration by --config.")
    if job in _NAMED_ALONE:
        own: dict[str, dict[str, Any]] | None = {table: {} for table in named}
    else:
        # options that say how long rows are kept say so for all tables
        own = None if "time_column" in options else config.own_tables(job, options)
    # a quarantine with a name of its own goes with all tables, not with some that are named
    shared = [] if asked.tables else config.quarantine_tables
    beside = {step.job_name: shared for step in OF_SIDE_TABLES if step.job_name == job}
    found = AssessTablesOperator(
        task_id="assess",
        tables=named,
        fed=[] if asked.tables else config.fed_patterns,
        policy={pattern: asdict(policy) for pattern, policy in config.policy.items()},
        steps={job: options},
        beside=beside,
        own={} if own is None else {job: own},
        history=config.history_tables,
        zone=config.schedules.timezone,
        is_dry=asked.dry_run,
        catalog_conn_id=config.catalog,
    ).assessed()
    absent = [table.table for table in found.tables if table.is_absent]
    if absent and asked.tables:
        raise _unknown_tables(absent, "The catalog has")
    result.tables |= {name: {"outcome": "skipped", "reason": "It does not exist yet."} for name in absent}
    plan = PlanOperator(task_id="plan", assessment="", jobs=[job], catalog_conn_id=config.catalog).chosen(found)
    for table in found.tables:
        if job in table.idle:
            result.tables[table.table] = {"outcome": "nothing", "reason": table.idle[job]}
    for name, error in found.unseen.items():
        result.tables[name] = {"outcome": "failed", "reason": error}
        result.errors.append(f"{name} cannot be looked at, so that nothing is removed from it: {error}")
        result.codes.add(EXIT_UNKNOWN)
    for left in plan.skipped:
        result.tables[left.table] = {"outcome": "skipped", "reason": left.reason}
    if not (result.tables or plan.chosen):
        raise InputError(
            f"{job} may be done to none of {', '.join(table.table for table in found.tables) or ', '.join(named)}.",
            hint="See policy, retention and checks of the configuration, and the tables' properties lakecdc.policy.….",
        )
    for task in tasks_of(plan, found, [job], config.tables_per_application):
        yield task[job]


def _operator(job: str, config: LakeConfig, arguments: Mapping[str, Any]) -> LakecdcJobOperator:
    module = importlib.import_module(f"airflow_provider_lakecdc.operators.{job}")
    (kind,) = (found for found in vars(module).values() if getattr(found, "job_name", None) == job)
    operator: LakecdcJobOperator = kind(
        task_id=job,
        catalog_conn_id=config.catalog,
        # a job is taken up again by the next try of a task, and there is none
        durable=False,
        **{**config.spark.arguments(), **arguments},
    )
    given = {name: getattr(operator, name, None) for name in operator.template_fields}
    if templated := [name for name, value in given.items() if "{{" in json.dumps(value, default=str)]:
        raise SpecError(
            f"The {templated[0]} of {job} are a template, which only a DAG run renders.",
            hint="Trigger the DAG, or give the value by --options.",
        )
    return operator


def _execute(operator: LakecdcJobOperator, number: int, result: Result) -> None:
    ti = _TaskInstance(operator.task_id, number)
    run = SimpleNamespace(run_type="manual", run_id=ti.run_id, conf={}, triggering_user_name=getuser())
    context: Any = {"ti": ti, "dag_run": run, "outlet_events": {}}
    try:
        # what is logged meanwhile, if anything, is none of the command's own output
        with redirect_stdout(sys.stderr):
            result.tables |= operator.execute(context)
    except LakecdcJobError as error:
        result.tables |= compact(error.report) if error.report else {}
        result.errors.append(_told(error))
        result.codes.add(EXIT_CODES.get(error.failure_class, EXIT_UNKNOWN))
    except KeyboardInterrupt:
        operator.on_kill()
        raise
    if uri := ti.told.get(REPORT_URI_KEY):
        result.reports.append(uri)


def _told(error: LakecdcJobError) -> str:
    """A failure in one line; the reasons of tables stand beside these."""
    if error.report is None or error.report.error:
        return one_line(error)
    remedy = error.hint if error.failure_class != "unknown" else "With --verbose you see the job's own output."
    return f"{error.message.splitlines()[0].rstrip(':')}. {remedy}"


class _TaskInstance(SimpleNamespace):
    """The part of a task instance that operators use."""

    def __init__(self, task_id: str, number: int) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        ids = {"dag_id": DAG_ID, "run_id": f"manual__{now}", "task_id": task_id, "map_index": number, "try_number": 1}
        super().__init__(**ids, stats_tags={"dag_id": DAG_ID, "task_id": task_id}, told={})

    def xcom_push(self, key: str, value: Any) -> None:
        """Keep what the operator tells."""
        self.told[key] = value


def _tell(asked: Namespace, result: Result) -> None:
    if asked.json:
        document = {"job": asked.job, "tables": result.tables, "errors": result.errors, "reports": result.reports}
        print_json(document)
        return
    if result.tables:
        headings = {"table": "left", "outcome": "left", "core-s": "right", "details": "left"}
        print_grid(headings, (_row(name, facts) for name, facts in result.tables.items()))
    print_lines("", *(f"report at {uri}" for uri in result.reports), *result.errors)


def _row(name: str, facts: Mapping[str, Any]) -> list[str]:
    taken = facts.get("metrics", {}).get("core_seconds")
    return [name, facts["outcome"], "-" if taken is None else f"{taken:,.2f}", details(facts)]
