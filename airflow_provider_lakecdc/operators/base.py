"""The base operator of all jobs: writes the spec, submits the job, reads the report."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowSkipException, TaskDeferred

from airflow_provider_lakecdc import audit, settings
from airflow_provider_lakecdc.exceptions import LakecdcJobError
from airflow_provider_lakecdc.governance.precheck import Precheck, precheck_source, precheck_tables
from airflow_provider_lakecdc.hooks.catalog import get_catalog
from airflow_provider_lakecdc.observe import lineage, metrics
from airflow_provider_lakecdc.submit import launcher, reporting, shipping
from airflow_provider_lakecdc.submit.documents import Documents
from airflow_provider_lakecdc.submit.failures import interrupted, reschedule_if_leased, verdict
from airflow_provider_lakecdc.submit.job_run import (
    JOB_RUN_KEY,
    JobReportLink,
    JobRun,
    ProgressForwarder,
    SparkUiLink,
    TableLink,
    push_links,
)
from airflow_provider_lakecdc.submit.reporting import REPORT_KEY, failed_before
from airflow_provider_lakecdc.submit.spark_submit import SubmitError, SubmitOperator
from airflow_provider_lakecdc.submit.submission import Submission, check_conf, check_spec, spec_document, table_list
from lakecdc.contract import runtime
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.report import JobReport, log_tables, now, parse_report
from lakecdc.metadata.names import side_tables

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context
    from pydantic import JsonValue

#: for ``map_index_template``: mapped tasks show their tables instead of a number (Airflow keeps 250 characters)
MAP_INDEX_TEMPLATE = "{{ task.tables | join(', ') | truncate(200) }}"
#: XCom with the URI of the report, pushed when the job is submitted
REPORT_URI_KEY = "lakecdc_report_uri"
_SET_HERE = ("application_args", "java_class")


class LakecdcJobOperator(SubmitOperator):
    """Run one lakecdc job over a list of tables in one Spark application.

    The job's report decides, not how its application ended. The report becomes the return value (a dict by table),
    the extra of asset events and a summary in the log; a failure is raised as one of the classes of
    ``airflow_provider_lakecdc.exceptions`` with the report's reasons.

    A cleared task always submits again: the id that the Spark provider stores to reattach after a lost worker (in
    cluster mode) is deleted as soon as its job has ended.

    :param tables: ``namespace.name`` of each table. (templated)
    :param catalog_conn_id: connection of type ``iceberg``; default: ``[lakecdc] catalog_conn_id``. (templated)
    :param job: name of the job; subclasses set it.
    :param options: options of the job, see ``lakecdc.contract.options``. (templated)
    :param only: restrict the work to these of the tables and their side tables; empty means all. (templated)
    :param strict_run_conf: refuse a DAG run whose ``conf`` has keys that are not params of the DAG.
    :param after: ids of earlier tasks of the run that work on the same tables; tables for which one of them failed are
        skipped. Use it with ``trigger_rule="all_done"``.
    :param planned_by: id of the task of the ``PlanOperator`` that plans the tables of this task and of the tasks before
        it; a task without planned tables is skipped.
    :param policy_options: options that override ``options``, from the policies of the tables. (templated)
    :param look_first: check the tables' metadata on the worker, and start Spark only for tables that may need the job
        (``airflow_provider_lakecdc.governance.precheck``); default: ``[lakecdc] look_first``.
    :param predicted_core_seconds: the plan's prediction by job and table, for the audit. (templated)
    :param guessed_core_seconds: the same before correction by measured runs. (templated)
    :param documents_uri: folder for spec and report; default: ``[lakecdc] documents_uri``. (templated)
    :param conn_id: connection to Spark, see docs/operations/managed-spark.md; default: ``[lakecdc] spark_conn_id``.
    :param deferrable: wait for a run on a platform in the triggerer instead of a worker; default: ``[operators]
        default_deferrable``. With spark-submit the worker waits.
    :param application: the job's script, such as ``local:///opt/jobs/ingest.py``; default: the installed one.
    :param packages: Maven coordinates in addition to those that the catalog needs.
    :param py_files: Python files in addition to the job library.
    :param kwargs: arguments of ``SparkSubmitOperator``, where platforms refuse unsupported ones, and of
        ``BaseOperator``.
    """

    #: the job of a subclass, which names it as an argument of the class
    job_name: ClassVar[str] = ""
    template_fields: Sequence[str] = (
        *SubmitOperator.template_fields,
        "tables",
        "only",
        "catalog_conn_id",
        "options",
        "policy_options",
        "predicted_core_seconds",
        "guessed_core_seconds",
        "documents_uri",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "options": "json",
        "conf": "json",
        "predicted_core_seconds": "json",
        "guessed_core_seconds": "json",
    }
    operator_extra_links = (JobReportLink(), TableLink(), SparkUiLink())

    def __init__(
        self,
        *,
        tables: str | Sequence[str] = (),
        catalog_conn_id: str | None = None,
        job: str | None = None,
        options: Mapping[str, Any] | None = None,
        only: str | Sequence[str] = (),
        strict_run_conf: bool = False,
        after: Sequence[str] = (),
        planned_by: str | None = None,
        policy_options: Mapping[str, Any] | None = None,
        look_first: bool | None = None,
        predicted_core_seconds: Mapping[str, Mapping[str, float]] | None = None,
        guessed_core_seconds: Mapping[str, Mapping[str, float]] | None = None,
        documents_uri: str | None = None,
        conn_id: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        if given := [argument for argument in _SET_HERE if argument in kwargs]:
            raise ValueError(f"{type(self).__name__} sets {given[0]} itself.")
        self.job = job or self.job_name
        super().__init__(conn_id=conn_id or settings.spark_conn_id(), name=name or f"lakecdc-{self.job}", **kwargs)
        self.tables = tables
        self.catalog_conn_id = catalog_conn_id or settings.catalog_conn_id()
        self.options = dict(options or {})
        self.only = only
        self.strict_run_conf = strict_run_conf
        self.after = list(after)
        self.planned_by = planned_by
        self.policy_options = dict(policy_options or {})
        self.look_first = settings.look_first() if look_first is None else look_first
        self.predicted_core_seconds = predicted_core_seconds
        self.guessed_core_seconds = guessed_core_seconds
        self.documents_uri = documents_uri or settings.documents_uri()
        self._documents: Documents | None = None
        self._checked = Precheck()
        self._started = now()

    def __init_subclass__(cls, *, job: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.job_name = job or cls.job_name

    def resume(
        self, context: Context, event: Mapping[str, str], before: Mapping[str, Any] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Go on after a wait in the triggerer, as :meth:`execute` would have after a wait here.

        :param before: see :meth:`resume_arguments`; Airflow leaves it out in ``dag.test()``.
        """
        idle = parse_report(before["idle"]) if before else JobReport(self.job, now(), now())
        self.ended, self._started = event, idle.started_at
        self._checked = Precheck(idle.tables, frozenset(before["left"] if before else ()))
        try:
            return self.execute(context)
        finally:
            self.ended = None

    def resume_arguments(self) -> dict[str, Any]:
        """Return the precheck and the task's start, for :meth:`resume`."""
        idle = JobReport(self.job, self._started, now(), tables=self._checked.idle)
        return {"before": {"idle": json.loads(idle.to_json()), "left": sorted(self._checked.left)}}

    def execute(self, context: Context) -> dict[str, dict[str, Any]]:  # type: ignore[override]
        """Submit the job and convert its report to a return value, XComs, asset events and metrics.

        :return: outcome, reason, snapshots and metrics by table.
        :raises AirflowSkipException: earlier steps failed for every table.
        :raises AirflowRescheduleException: another run holds the lease of a table.
        :raises JobBadInputError: refused before or by the job; Airflow does not retry it.
        :raises JobConflictError: another writer committed first.
        :raises JobClusterError: a system was unavailable or out of resources.
        :raises LakecdcJobError: the job failed for another reason.
        """
        if self.strict_run_conf:
            check_conf(context)
        self.check_run(context)
        self._restrict_tables(context)
        job = self.prepare(context)
        if self.ended is None:
            self._started = now()
        job_run = JobRun(self.job, self.catalog_conn_id, job.spec.tables, job.spec.options.dry_run, self._started)
        context["ti"].xcom_push(key=JOB_RUN_KEY, value=job_run.to_xcom())
        push_links(context, self.catalog_conn_id, job.spec.tables)
        if self.ended is None:
            self._checked = self._precheck(context, job)
            log_tables(self.log.log, self._checked.idle)
        report: JobReport | None
        submit_error: SubmitError | None = None
        if self._checked.is_all_idle:
            report = self._report_idle(context, job)
        else:
            report, submit_error = self._run(context, job)
        if report is not None:
            self._publish(context, job, report)
        failure = verdict(report, submit_error, job.spec.options.fail_on)
        context["ti"].xcom_push(key=JOB_RUN_KEY, value=job_run.ended(report, failure).to_xcom())
        if failure:
            reschedule_if_leased(context, report, job.spec.options.fail_on)
            raise failure
        assert report is not None
        if submit_error is not None:
            self.log.warning("The submission failed after the job was done: %s", submit_error)
        return reporting.compact(report)

    @classmethod
    def options_in(cls, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the job among the arguments of a subclass; None for an object means an empty one."""
        return {
            each.name: {} if each.default_factory is dict and arguments[each.name] is None else arguments[each.name]
            for each in dataclasses.fields(OPTIONS[cls.job_name])
        }

    def check_run(self, context: Context) -> None:
        """Refuse a DAG run that this job cannot serve; subclasses implement it."""

    def spec_parts(self, secrets: dict[str, str]) -> dict[str, Any]:
        """Return parts of the spec besides catalog, tables and options; add the values of further secrets."""
        return {}

    def named_tables(self) -> tuple[list[str], list[str]]:
        """Return the tables to work on, and the side tables."""
        return table_list(self.tables), table_list(self.options.get("side_tables", ()))

    def keep_tables(self, tables: Sequence[str], beside: Sequence[str]) -> None:
        """Restrict the job to some tables and side tables."""
        self.tables = list(tables)
        if "side_tables" in self.options:
            self.options["side_tables"] = list(beside)

    def prepare(self, context: Context | None = None) -> Submission:
        """Build and check the spec and what is submitted, without writing anything.

        :param context: the task's context; without one the documents' URIs are for a preview.
        :raises JobBadInputError: the job would refuse the spec.
        """
        catalog = get_catalog(self.catalog_conn_id)
        secrets = dict(catalog.secrets.values)
        parts = self.spec_parts(secrets)
        document = spec_document(self.job, catalog, table_list(self.tables), self.options, **parts)
        spec = check_spec(document, self.job)
        packages = [*runtime.packages(catalog.properties), *runtime.source_packages(spec.source)]
        submission = Submission.of(self, document, spec, secrets, packages, context)
        self._documents = submission.documents
        return submission

    def render(self, context: Context | None = None) -> dict[str, Any]:
        """Show what would be submitted, with secrets masked; nothing is written or started.

        :param context: as for :meth:`prepare`. Templates that were not rendered are shown unchanged.
        :return: ``command`` (of a platform: its request), ``environment``, ``spec_uri`` and ``spec``.
        """
        submission = self.prepare(context)
        return {
            "command": submission.submitter.preview(submission.application),
            "environment": {**submission.environment, **dict.fromkeys(submission.secrets, "***")},
            "spec_uri": submission.documents.spec_uri,
            "spec": submission.document,
        }

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return the datasets that the job read and wrote, None without a report; called after a failure too."""
        if self._documents is None or (report := self._documents.read_report()) is None:
            return None
        spec = self._documents.read_spec()
        return lineage.lineage_of(reporting.without_plans(report, spec), spec, get_catalog(self.catalog_conn_id))

    def submit_job(self, context: Context) -> str | None:
        """Store the documents' folder with the job's id, for a try that reattaches to the job."""
        if (store := context.get("task_state_store")) is not None and self._documents is not None:
            store.set(REPORT_URI_KEY, self._documents.folder)
        return super().submit_job(context)

    def get_job_status(self, external_id: JsonValue, context: Context) -> str:
        """Return the status of an earlier try's job; use that try's documents if the job is resumed."""
        if self.ended is not None:
            # it may have failed with a report
            self._use_stored_documents(context)
        status = super().get_job_status(external_id, context)
        if self.is_job_active(status) or self.is_job_succeeded(status):
            self._use_stored_documents(context)
        return status

    def _use_stored_documents(self, context: Context) -> None:
        store = context.get("task_state_store")
        if store is not None and (folder := store.get(REPORT_URI_KEY)):
            self._documents = Documents(str(folder))

    def _restrict_tables(self, context: Context) -> None:
        """Apply the plan's options, and drop tables that are not selected or for which an earlier step failed."""
        if self.planned_by is not None and not table_list(self.tables):
            raise AirflowSkipException("The plan has nothing for this task.")
        self.options |= self.policy_options
        if only := table_list(self.only):
            selected = {table for table in self.named_tables()[0] if table in only}
            theirs = {name for table in selected for name in side_tables(table)}
            self._keep_only(selected, theirs, "None of this group's tables is selected.")
        tables, beside = self.named_tables()
        failed = failed_before(context, [*tables, *beside], self.after, self.planned_by)
        for table, reason in failed.items():
            self.log.warning("Skipping %s, because an earlier step failed for it: %s", table, reason)
        if failed:
            left = {*tables, *beside}.difference(failed)
            self._keep_only(left, left, "Earlier steps of this run failed for every table of this group.")

    def _keep_only(self, tables: Collection[str], beside: Collection[str], reason: str) -> None:
        """Restrict the job to some of its tables and side tables; skip the task for a reason if no table is left."""
        named, named_beside = self.named_tables()
        if not (left := [table for table in named if table in tables]):
            raise AirflowSkipException(reason)
        self.keep_tables(left, [table for table in named_beside if table in beside])

    def _precheck(self, context: Context, job: Submission) -> Precheck:
        """Find tables that do not need the job, unless a job of an earlier try may still work on them."""
        catalog, store = get_catalog(self.catalog_conn_id), context.get("task_state_store")
        may_skip = self.look_first and not (store is not None and any(store.get(key) for key in self.stored_keys))
        if job.spec.source is not None and job.driver_is_here:
            given = {name: str(value) for name, value in (self.env_vars or {}).items()}
            environment = {**os.environ, **job.environment, **job.secrets, **given}
            return precheck_source(catalog, job, environment, may_skip=may_skip)
        return precheck_tables(catalog, job.spec) if may_skip else Precheck()

    def _report_idle(self, context: Context, job: Submission) -> JobReport:
        self.log.info("No table needs %s, so Spark is not started.", self.job)
        self._write_spec(context, job)
        report = JobReport(self.job, self._started, now(), tables=self._checked.idle)
        job.documents.write_report(report)
        return report

    def _run(self, context: Context, job: Submission) -> tuple[JobReport | None, SubmitError | None]:
        """Submit the job for the remaining tables, read its report, and add the idle tables."""
        if self._checked.idle:
            tables, beside = self.named_tables()
            # a spec needs a table, even if only side tables need the job
            left = [table for table in tables if table in self._checked.left] or tables[:1]
            self.keep_tables(left, [table for table in beside if table in self._checked.left])
            job = self.prepare(context)
        report, submit_error = self._audited(context, job)
        assert self._documents is not None
        if (report is not None or submit_error is None) and (store := context.get("task_state_store")) is not None:
            for key in (*self.stored_keys, REPORT_URI_KEY):
                store.delete(key)
        if report is None:
            return None, submit_error
        if not job.driver_is_here:  # else the task's log has the job's lines
            log_tables(self.log.log, report.tables)
        reported = {table.table for table in report.tables}
        if idle := [table for table in self._checked.idle if table.table not in reported]:
            report = dataclasses.replace(report, tables=(*report.tables, *idle))
            self._documents.write_report(report)
        return report, submit_error

    def _audited(self, context: Context, job: Submission) -> tuple[JobReport | None, SubmitError | None]:
        """Submit the job, read its report and record it in the lake."""
        if self.ended is None:
            self._write_spec(context, job)
            job.documents.write_application()
        try:
            submit_error = self._submit(context, job)
            assert self._documents is not None
            report = self._documents.read_report()
        except TaskDeferred:
            raise
        except BaseException as error:
            # such as a task timeout; the application was started
            self._record(context, job, None, interrupted(error))
            raise
        self._record(context, job, report, None if report else verdict(None, submit_error))
        return report, submit_error

    def _record(
        self, context: Context, job: Submission, report: JobReport | None, failure: LakecdcJobError | None
    ) -> None:
        if not settings.audit():
            return
        try:
            submitted = (self._documents or job.documents).read_application()
            application = audit.Application(
                submitted["id"],
                audit.Run.of(context, self.owner),
                self.job,
                job.spec.tables,
                submitted["at"],
                report,
                failure,
                predicted_core_seconds=self.predicted_core_seconds or {},
                guessed_core_seconds=self.guessed_core_seconds or {},
                is_dry_run=job.spec.options.dry_run,
            )
            audit.record_application(get_catalog(self.catalog_conn_id), application)
        except Exception:
            self.log.warning("Cannot record the job in the audit.", exc_info=True)

    def _write_spec(self, context: Context, job: Submission) -> None:
        job.documents.write_spec(json.dumps(job.document, indent=2))
        context["ti"].xcom_push(key=REPORT_URI_KEY, value=job.documents.report_uri)

    def _submit(self, context: Context, submission: Submission) -> SubmitError | None:
        uri = submission.documents.report_uri
        self.log.info("Job %s for %d tables, report at %s", self.job, len(submission.spec.tables), uri)
        progress = ProgressForwarder(context["ti"].xcom_push)
        try:
            shipping.upload(submission.uploads)
            with launcher.environment({**submission.environment, **submission.secrets}):
                self.submit_and_wait(context, submission.submitter, submission.application, progress.listeners)
        except SubmitError as error:
            return error
        finally:
            progress.end()
        return None

    def _publish(self, context: Context, submission: Submission, report: JobReport) -> None:
        self.log.info("%s", reporting.summary(report))
        # a failed task has no return value, but its report is needed most
        context["ti"].xcom_push(key=REPORT_KEY, value=reporting.compact(report))
        changed = reporting.without_plans(report, submission.spec)
        reporting.raise_asset_events(context, self.outlets, self.catalog_conn_id, report, changed)
        metrics.emit(context, self.catalog_conn_id, changed)
