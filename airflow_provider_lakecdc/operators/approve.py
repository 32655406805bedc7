"""The operator that asks for approval of a dry run's findings, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.governance.assessment import parse_assessment
from airflow_provider_lakecdc.operators.plan import task_arguments
from airflow_provider_lakecdc.submit.documents import read_document
from airflow_provider_lakecdc.submit.reporting import reports_of

#: the answer that removes nothing, also the default
NONE = "none of them"
#: key of the lists in the question, by table
QUESTION_KEY = "lakecdc_question"
#: metrics of the dry run in the question, by job
_SHOWN = {
    "remove_orphan_files": ("orphan_files", "orphan_bytes", "orphan_oldest", "files_due"),
    "expire_partitions": ("rows_removed", "bytes_removed", "partitions_removed", "oldest", "floor_after"),
}


class ApproveOperator(HITLOperator):
    """Ask from which tables a job may remove what its dry run found, and restrict the job to the answer.

    The options are the tables with findings, and none of them; without findings the task is skipped. No answer within
    ``response_timeout`` means no. The return value is what the job is mapped over: the groups of the dry run without
    the tables that were not chosen, and the option ``approved`` with each table's list and digest as the question had
    them, even if the dry run was cleared and ran again meanwhile.

    :param job: name of the job.
    :param found_by: id of its dry run's task.
    :param planned_by: id of the task of the ``PlanOperator`` that plans it.
    :param assessment: URI of the assessment, which has the tables' owners. (templated)
    """

    template_fields: Sequence[str] = (*HITLOperator.template_fields, "assessment")

    def __init__(self, *, job: str, found_by: str, planned_by: str, assessment: Any, **kwargs: Any) -> None:
        super().__init__(subject=f"What may {job} remove?", options=[NONE], defaults=[NONE], multiple=True, **kwargs)
        self.job = job
        self.found_by = found_by
        self.planned_by = planned_by
        self.assessment = assessment

    def execute(self, context: Context) -> Any:
        """Ask for approval.

        :raises AirflowSkipException: there is nothing to approve.
        """
        reported = {table: facts.get("metrics", {}) for table, facts in reports_of(context, self.found_by).items()}
        findings = {table: metrics for table, metrics in reported.items() if metrics.get("findings")}
        if not findings:
            raise AirflowSkipException("The dry run found nothing to remove, so no approval is needed.")
        owners = {each.table: each.owner for each in parse_assessment(read_document(self.assessment)).tables}
        self.options = [NONE, *findings]
        self.body = question(self.job, findings, owners)
        self.log.info("%s", self.body)
        lists = {table: dict(metrics["findings"]) for table, metrics in findings.items()}
        context["ti"].xcom_push(key=QUESTION_KEY, value=lists)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Process the answer, and return the arguments of each task of the job.

        :raises JobBadInputError: the lists in the question are unknown.
        """
        shown: Mapping[str, Mapping[str, str]] | None = context["ti"].xcom_pull(
            task_ids=self.task_id, key=QUESTION_KEY, map_indexes=context["ti"].map_index
        )
        if not shown:
            raise JobBadInputError(
                "The lists in the question are unknown, so its answer approves nothing.",
                hint="Clear this task to ask again.",
            )
        self.options = [NONE, *shown]
        answer = super().execute_complete(context, event)
        chosen = [] if NONE in answer["chosen_options"] else answer["chosen_options"]
        user = answer["responded_by_user"]
        self.log.info("%s: %s", user["name"] if user else "no answer in time", ", ".join(chosen) or NONE)
        planned = context["ti"].xcom_pull(task_ids=self.planned_by) or ()
        groups = [of_job for each in planned if (of_job := each.get(self.found_by))]
        return approved_groups(groups, {table: shown[table] for table in chosen})


def question(job: str, findings: Mapping[str, Mapping[str, Any]], owners: Mapping[str, str | None]) -> str:
    """Format the question in Markdown, with the dry run's metrics by table."""
    shown = _SHOWN[job]
    rows = [
        ("table", "owner", *shown, "list", "sha256"),
        ("---",) * (len(shown) + 4),
        *(
            (table, owners.get(table) or "", *map(metrics.get, shown), *map(metrics["findings"].get, ("uri", "sha256")))
            for table, metrics in findings.items()
        ),
    ]
    lines = [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    text = (
        f"A dry run of `{job}` found the following. Choose the tables from which it may be removed. The others keep "
        f"it, and all do if `{NONE}` is chosen or there is no answer in time. Only what is in a table's list and is "
        "found again is removed."
    )
    return "\n".join([text, "", *lines])


def approved_groups(
    groups: Sequence[Mapping[str, Any]], approved: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Return the arguments of a job's tasks: those of its dry run, restricted to the approved lists by table."""
    tasks = []
    for group in groups:
        options = {**group["policy_options"], "dry_run": False}
        tables = [table for table in group["tables"] if table in approved]
        beside = [table for table in options.pop("side_tables", ()) if table in approved]
        if tables or beside:
            options["approved"] = {table: dict(approved[table]) for table in (*tables, *beside)}
            tasks.append(task_arguments(tables, beside, options))
    return tasks


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")
