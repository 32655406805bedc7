"""The operator that asks a person about what a dry run has found, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import HITLOperator
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_lakecdc.documents.store import read_document
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.governance.assessment import parse_assessment
from airflow_provider_lakecdc.submit.table_chains import reports_of

if TYPE_CHECKING:
    from airflow.sdk import Context

#: the answer that takes nothing away; whoever says nothing has said this
NONE = "none of them"
#: key of the lists that the question has shown, by table
QUESTION_KEY = "lakecdc_question"
#: metrics of the dry run that the question shows, by job
_SHOWN = {
    "remove_orphan_files": ("orphan_files", "orphan_bytes", "orphan_oldest", "files_due"),
    "expire_partitions": ("rows_removed", "bytes_removed", "partitions_removed", "oldest", "floor_after"),
}


class ApproveOperator(HITLOperator):
    """Asks which tables a job may take from what its dry run has found there, and holds the job to that.

    The options are the tables of which something was found, and none of them; without any, the task is skipped and
    nobody is asked. No answer within ``response_timeout`` is a no. The return value is what the job is mapped over: the
    groups of the dry run without the tables that were not chosen, and the option ``approved`` with each table's list
    and digest as the question has shown them, also if the dry run was cleared and has run again meanwhile.

    :param job: name of the job.
    :param found_by: id of the task of its dry run.
    :param planned_by: id of the task of the ``PlanOperator`` that plans it.
    :param assessment: URI of the assessment, which knows the tables' owners. (templated)
    :param kwargs: arguments of ``HITLOperator``.
    """

    template_fields: Sequence[str] = (*HITLOperator.template_fields, "assessment")
    ui_color = "#d9ecf2"

    def __init__(self, *, job: str, found_by: str, planned_by: str, assessment: Any, **kwargs: Any) -> None:
        super().__init__(subject=f"What may {job} take away?", options=[NONE], defaults=[NONE], multiple=True, **kwargs)
        self.job = job
        self.found_by = found_by
        self.planned_by = planned_by
        self.assessment = assessment

    def execute(self, context: Context) -> Any:
        """Ask.

        :raises AirflowSkipException: nothing would be taken away.
        """
        found = self._found(context)
        if not found:
            raise AirflowSkipException("The dry run has found nothing that would be taken away: nobody is asked.")
        owners = {each.table: each.owner for each in parse_assessment(read_document(self.assessment)).tables}
        self.options = [NONE, *found]
        self.body = question(self.job, found, owners)
        self.log.info("%s", self.body)
        lists = {table: dict(metrics["findings"]) for table, metrics in found.items()}
        context["ti"].xcom_push(key=QUESTION_KEY, value=lists)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Take the answer.

        :return: arguments of each task of the job.
        :raises JobBadInputError: nothing says what the question has shown.
        """
        shown: Mapping[str, Mapping[str, str]] | None = context["ti"].xcom_pull(
            task_ids=self.task_id, key=QUESTION_KEY, map_indexes=context["ti"].map_index
        )
        if not shown:
            raise JobBadInputError(
                "The lists that the question has shown are not known, so that its answer approves nothing.",
                hint="Clear this task: it asks again.",
            )
        self.options = [NONE, *shown]
        answer = super().execute_complete(context, event)
        chosen = [] if NONE in answer["chosen_options"] else answer["chosen_options"]
        user = answer["responded_by_user"]
        self.log.info("%s: %s", user["name"] if user else "nobody in time", ", ".join(chosen) or NONE)
        planned = context["ti"].xcom_pull(task_ids=self.planned_by) or ()
        groups = [of_job for each in planned if (of_job := each.get(self.found_by))]
        return approved_groups(groups, {table: shown[table] for table in chosen})

    def _found(self, context: Context) -> dict[str, Mapping[str, Any]]:
        """Return the metrics of the dry run, of the tables that would lose something."""
        reported = {table: facts.get("metrics", {}) for table, facts in reports_of(context, self.found_by).items()}
        return {table: metrics for table, metrics in reported.items() if metrics.get("findings")}


def question(job: str, found: Mapping[str, Mapping[str, Any]], owners: Mapping[str, str | None]) -> str:
    """What a person is asked, in Markdown.

    :param found: metrics of the dry run, by table.
    """
    shown = _SHOWN[job]
    rows = [
        ("table", "owner", *shown, "list", "sha256"),
        ("---",) * (len(shown) + 4),
        *(
            (table, owners.get(table) or "", *(metrics.get(name) for name in shown), *_findings(metrics))
            for table, metrics in found.items()
        ),
    ]
    lines = [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    told = (
        f"A dry run of `{job}` has found this. Choose the tables from which it may be taken away; the others keep it, "
        f"and all do if `{NONE}` is chosen or nobody answers in time. Only what is found again and stands in a table's "
        "list is taken."
    )
    return "\n".join([told, "", *lines])


def approved_groups(
    groups: Sequence[Mapping[str, Any]], approved: Mapping[str, Mapping[str, str]]
) -> list[dict[str, Any]]:
    """Arguments of the tasks of a job that is held to what was approved.

    :param groups: arguments of the tasks of its dry run.
    :param approved: URI and digest of the list of each table.
    """
    found = []
    for group in groups:
        options = {**group["policy_options"], "dry_run": False}
        tables = [table for table in group["tables"] if table in approved]
        beside = [table for table in options.pop("side_tables", ()) if table in approved]
        if not tables and not beside:
            continue
        options["approved"] = {table: dict(approved[table]) for table in (*tables, *beside)}
        if tables and beside:
            options["side_tables"] = beside
        # those beside the tables that keep everything are tables like any other
        found.append({"tables": tables or beside, "policy_options": options})
    return found


def _findings(metrics: Mapping[str, Any]) -> tuple[str, str]:
    return metrics["findings"]["uri"], metrics["findings"]["sha256"]


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value).replace("|", "\\|")
