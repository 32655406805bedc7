"""The spec of a job run and everything submitted with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, get_type_hints

from airflow.sdk import Context

from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from airflow_provider_lakecdc.submit import launcher, shipping
from airflow_provider_lakecdc.submit.documents import Documents
from airflow_provider_lakecdc.submit.platforms import SPARK_SUBMIT, open_platform
from airflow_provider_lakecdc.submit.spark_submit import SparkSubmit, SubmitOperator
from airflow_provider_lakecdc.submit.submitter import Application, Submitter
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import refuse_unknown
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.spec import GOVERN, VERSION, JobSpec, parse_spec


@dataclass(frozen=True)
class Submission:
    """A job's spec with everything needed to submit it.

    :param document: the spec, with references instead of secrets.
    :param secrets: values of the references by environment variable.
    :param environment: further variables of spark-submit.
    :param driver_is_here: whether the job's driver runs on this worker.
    :param uploads: files of the application to write to object storage, by their URI.
    """

    document: dict[str, Any]
    spec: JobSpec
    documents: Documents
    secrets: dict[str, str] = field(repr=False)
    environment: dict[str, str]
    driver_is_here: bool
    application: Application
    submitter: Submitter
    uploads: dict[str, Path]

    @classmethod
    def of(
        cls,
        operator: SubmitOperator,
        document: dict[str, Any],
        spec: JobSpec,
        secrets: dict[str, str],
        packages: Sequence[str],
        context: Context | None,
    ) -> Self:
        """Assemble an operator's submission of a spec.

        :param document: the spec to write.
        :param packages: Maven coordinates that the job needs.
        :param context: of the running task; without one the documents' URIs are for a preview.
        :raises JobBadInputError: it cannot be submitted through the operator's connection.
        """
        target = launcher.spark_target(operator.spark_conn_id, operator.deploy_mode)
        launcher.refuse_secrets_in_cluster_mode(target, secrets)
        documents = Documents.of_try(operator.documents_uri, context)
        environment, is_here = launcher.worker_environment(target), not target.cluster_mode
        application = Application(
            operator.name,
            operator.application or str(shipping.job_script(spec.job)),
            ("--spec", documents.spec_uri, "--report", documents.report_uri),
            _joined(operator.py_files, str(shipping.library_zip())),
            _joined(operator.archives),
            _joined(operator.packages, *packages),
            operator.spark_settings(context),
            {name: str(value) for name, value in (operator.env_vars or {}).items()},
        )
        if target.platform == SPARK_SUBMIT:
            submitter = SparkSubmit(operator, launcher.submit_binary(target), context)
            return cls(document, spec, documents, secrets, environment, is_here, application, submitter, {})
        operator.refuse_spark_submits_own(target.platform)
        application.refuse_secrets()
        platform = open_platform(operator.spark_conn_id)
        application, uploads = shipping.with_uris(application, operator.documents_uri, platform.library_suffix)
        return cls(document, spec, documents, secrets, environment, is_here, application, platform, uploads)


def spec_document(
    job: str, catalog: CatalogConnection, tables: Sequence[str], options: Mapping[str, Any], **parts: Any
) -> dict[str, Any]:
    """Create a job spec.

    :param options: the job's options; text from rendered templates is converted to numbers and switches.
    :param parts: ``source`` and ``target`` of a job with a source.
    """
    return {
        "version": VERSION,
        "job": job,
        "catalog": {"name": catalog.name, "properties": catalog.references},
        "tables": list(tables),
        "options": typed_options(job, options),
        **parts,
    }


def check_spec(document: Mapping[str, Any], job: str) -> JobSpec:
    """Validate a spec before starting Spark.

    :raises JobBadInputError: with the contract's message.
    """
    try:
        return parse_spec(document, job)
    except SpecError as error:
        raise JobBadInputError(f"The spec of job {job} is invalid: {error}") from error


def check_conf(context: Context) -> None:
    """Refuse a DAG run whose ``conf`` has an unknown key.

    :raises JobBadInputError: names the nearest known key.
    """
    try:
        refuse_unknown(context["dag_run"].conf or {}, {*context["dag"].params}, "the run's conf")
    except SpecError as error:
        raise JobBadInputError(str(error), hint="Nothing was done; trigger another run.") from error


def typed_options(job: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert text from rendered templates to numbers, switches and lists, by the types of the job's options."""
    hints = get_type_hints(OPTIONS[job]) if job in OPTIONS else {}
    typed = {name: _typed(value, hints.get(name)) for name, value in options.items()}
    if job == GOVERN:
        typed["steps"] = [_typed_step(s) if isinstance(s, Mapping) else s for s in typed.get("steps", ())]
    return typed


def is_true(value: bool | str) -> bool:
    """Return the truth of an argument that may be a rendered template."""
    return str(value).lower() == "true"


def table_list(tables: str | Sequence[str]) -> list[str]:
    """Convert tables to a list; a rendered template may be a JSON list or comma-separated names."""
    if not isinstance(tables, str):
        return list(tables)
    text = tables.strip()
    if text.startswith("["):
        # Jinja renders lists in Python's notation
        return [str(table) for table in json.loads(text.replace("'", '"'))]
    return [part.strip() for part in text.split(",") if part.strip()]


def _typed_step(step: Any) -> Any:
    """Convert the tables and options of a ``govern`` step; the contract validates it."""
    typed = dict(step)
    if isinstance(step.get("tables"), str):
        typed["tables"] = table_list(step["tables"])
    if isinstance(step.get("options"), Mapping):
        typed["options"] = typed_options(str(step.get("job")), step["options"])
    return typed


def _typed(value: Any, hint: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, str) or hint in (None, str):
        return value
    if hint in (bool, int, float):
        try:
            return json.loads(value.strip().lower())
        except ValueError:
            return value
    return table_list(value) if getattr(hint, "__origin__", None) is tuple else value


def _joined(given: str | None, *ours: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*table_list(given or ""), *ours]))
