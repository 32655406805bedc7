"""Everything that is submitted, put together and checked before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Context

from airflow_provider_lakecdc.documents.store import Documents
from airflow_provider_lakecdc.submit import launcher, platforms, shipping
from airflow_provider_lakecdc.submit.platforms import SPARK_SUBMIT
from airflow_provider_lakecdc.submit.spark_submit import SparkSubmit, SubmitOperator
from airflow_provider_lakecdc.submit.submission import Submission, table_list
from airflow_provider_lakecdc.submit.submitter import Application
from lakecdc.contract.spec import JobSpec


def prepare_submission(
    operator: SubmitOperator,
    document: dict[str, Any],
    spec: JobSpec,
    secrets: dict[str, str],
    packages: Sequence[str],
    context: Context | None,
) -> Submission:
    """Put together what an operator submits for a spec.

    :param document: the spec as it is written.
    :param packages: Maven coordinates that the job needs.
    :param context: of the running task; without one the documents' URIs are those of a preview.
    :raises JobBadInputError: it cannot be submitted through the operator's connection.
    """
    target = launcher.spark_target(operator.spark_conn_id, operator.deploy_mode)
    launcher.refuse_secrets_in_cluster_mode(target, secrets)
    documents = Documents.of_try(operator.documents_uri, context)
    environment, is_here = launcher.worker_environment(target), not target.cluster_mode
    application = _application(operator, spec.job, documents, packages, context)
    if target.platform == SPARK_SUBMIT:
        submitter = SparkSubmit(operator, launcher.submit_binary(target), context)
        return Submission(document, spec, documents, secrets, environment, is_here, application, submitter, {})
    operator.refuse_spark_submits_own(target.platform)
    application.refuse_secrets()
    platform = platforms.open_platform(target.platform, operator.spark_conn_id)
    application, uploads = shipping.with_uris(application, operator.documents_uri, platform.library_suffix)
    return Submission(document, spec, documents, secrets, environment, is_here, application, platform, uploads)


def _application(
    operator: SubmitOperator, job: str, documents: Documents, packages: Sequence[str], context: Context | None
) -> Application:
    return Application(
        operator.name,
        operator.application or str(shipping.job_script(job)),
        ("--spec", documents.spec_uri, "--report", documents.report_uri),
        _joined(operator.py_files, str(shipping.library_zip())),
        _joined(operator.archives),
        _joined(operator.packages, *packages),
        operator.spark_settings(context),
        {name: str(value) for name, value in (operator.env_vars or {}).items()},
    )


def _joined(given: str | None, *ours: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys([*table_list(given or ""), *ours]))
