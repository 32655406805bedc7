"""Fake hooks of Airflow providers that the tests' environment does not have.

Their methods have the names and arguments of apache-airflow-providers-apache-livy 4.6.4, -databricks 7.23.0,
-google 22.8.0, -cncf-kubernetes 10.25.0 and -amazon 9.39.0.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3
import pytest
from airflow.sdk.exceptions import AirflowException
from botocore.stub import Stubber

#: called with the arguments of a job that a fake has started
Runs = Callable[[Sequence[str]], None]


def install(monkeypatch: pytest.MonkeyPatch, module: str, **members: Any) -> None:
    """Make a module with some members, which ``from … import …`` finds without its parent packages."""
    stand_in = ModuleType(module)
    vars(stand_in).update(members)
    monkeypatch.setitem(sys.modules, module, stand_in)


class NotFound(Exception):
    """The error of Kubernetes' client."""

    status = 404


class Livy:
    """A Livy server: its batches, and the hook to reach it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, job: Runs = lambda _: None) -> None:
        self.job, self.batches = job, dict[int, dict[str, Any]]()
        self.deleted: set[int] = set()
        self.log = ["26/01/01 00:00:00 INFO Client: running", "Container killed by YARN for exceeding memory limits"]
        self.state = "success"
        server = self

        class LivyHook:
            def __init__(
                self,
                livy_conn_id: str = "livy_default",
                extra_options: Any = None,
                extra_headers: Any = None,
                auth_type: Any = None,
                endpoint_prefix: str | None = None,
            ) -> None:
                pass

            def post_batch(self, *args: Any, **kwargs: Any) -> int:
                names = [batch["name"] for batch in server.batches.values()]
                assert kwargs["name"] not in names, "Livy answers 400: Duplicate session name"
                server.batches[len(server.batches)] = kwargs
                job(kwargs["args"])
                return len(server.batches) - 1

            def get_batch(self, session_id: int | str) -> dict[str, Any]:
                if int(session_id) in server.deleted:
                    message = f'{{"msg":"Session \'{session_id}\' not found."}}'
                    raise AirflowException(f"Unable to fetch batch with id: {session_id}. Message: {message}")
                info = {"sparkUiUrl": "http://yarn:8088/proxy/application_1_1/", "driverLogUrl": None}
                return {"id": int(session_id), "state": server.state, "appId": "application_1_1", "appInfo": info}

            def delete_batch(self, session_id: int | str) -> dict[str, Any]:
                server.deleted.add(int(session_id))
                return {"msg": "deleted"}

            def get_batch_logs(self, session_id: int | str, log_start_position: int, log_batch_size: int) -> Any:
                lines = server.log[log_start_position : log_start_position + log_batch_size]
                return {"id": int(session_id), "from": log_start_position, "total": len(server.log), "log": lines}

        install(monkeypatch, "airflow.providers.apache.livy.hooks.livy", LivyHook=LivyHook)


class Databricks:
    """A Databricks workspace with one run, and the hook to reach it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.submitted: list[dict[str, Any]] = []
        self.cancelled: list[int] = []
        self.state = {"life_cycle_state": "RUNNING", "state_message": "In run"}
        workspace = self

        class DatabricksHook:
            def __init__(
                self,
                databricks_conn_id: str = "databricks_default",
                timeout_seconds: int = 180,
                retry_limit: int = 3,
                retry_delay: float = 1.0,
                retry_args: Any = None,
                caller: str = "DatabricksHook",
            ) -> None:
                pass

            def submit_run(self, json: dict[str, Any]) -> int:
                workspace.submitted.append(json)
                return 455644833

            def get_run(self, run_id: int) -> dict[str, Any]:
                return {"run_id": run_id, "state": workspace.state, "tasks": [{"run_id": 7, "task_key": "lakecdc"}]}

            def get_run_page_url(self, run_id: int) -> str:
                return f"https://workspace.example.com/?o=1#job/2/run/{run_id}"

            def get_run_output(self, run_id: int) -> dict[str, Any]:
                assert run_id == 7, "the API returns outputs of tasks only"
                return {"error": "SystemExit: 1", "error_trace": "Traceback\n  …\nSystemExit: 1"}

            def cancel_run(self, run_id: int) -> None:
                workspace.cancelled.append(run_id)

        install(monkeypatch, "airflow.providers.databricks.hooks.databricks", DatabricksHook=DatabricksHook)


class Dataproc:
    """A project's batches in a region, and the hook to reach them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.batches: dict[str, Any] = {}
        self.cancelled: list[str] = []
        self.state = "RUNNING"
        project = self

        class DataprocHook:
            def __init__(self, gcp_conn_id: str = "google_cloud_default", impersonation_chain: Any = None) -> None:
                pass

            def create_batch(self, region: str, project_id: str, batch: Any, batch_id: str | None = None) -> None:
                assert batch_id and 4 <= len(batch_id) <= 63
                project.batches[batch_id] = batch

            def get_batch(self, batch_id: str, region: str, project_id: str) -> Any:
                assert batch_id in project.batches
                state = SimpleNamespace(name=project.state)
                return SimpleNamespace(state=state, state_message="out of quota", operation=f"operations/{batch_id}")

            def get_operations_client(self, region: str | None) -> Any:
                return SimpleNamespace(cancel_operation=lambda name: project.cancelled.append(name))

        install(monkeypatch, "airflow.providers.google.cloud.hooks.dataproc", DataprocHook=DataprocHook)


class Kubernetes:
    """A cluster with the Spark operator, and the hook to reach it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.status: dict[str, Any] = {}
        cluster = self

        class KubernetesHook:
            def __init__(self, conn_id: str | None = None, kubernetes_conn_id: str | None = None) -> None:
                pass

            def create_custom_object(
                self, group: str, version: str, plural: str, body: Any, namespace: str | None = None
            ) -> Any:
                assert body["apiVersion"] == f"{group}/{version}" and body["metadata"]["namespace"] == namespace
                cluster.objects[body["metadata"]["name"]] = body

            def get_custom_object(
                self, group: str, version: str, plural: str, name: str, namespace: str | None = None
            ) -> Any:
                if name not in cluster.objects:
                    raise NotFound
                return {**cluster.objects[name], "status": cluster.status}

            def delete_custom_object(
                self, group: str, version: str, plural: str, name: str, namespace: str | None = None, **kwargs: Any
            ) -> Any:
                del cluster.objects[name]

            def get_pod_logs(self, pod_name: str, container: str | None = "", namespace: str | None = None) -> bytes:
                return f"first\n{pod_name} is out of memory\n".encode()

        install(monkeypatch, "airflow.providers.cncf.kubernetes.hooks.kubernetes", KubernetesHook=KubernetesHook)


def stub_aws(monkeypatch: pytest.MonkeyPatch, module: str, hook: str, service: str) -> Stubber:
    """Install a hook of the Amazon provider whose client knows the service's API and gives prepared answers."""
    keys = {"aws_access_key_id": "id", "aws_secret_access_key": "key", "region_name": "eu-west-1"}
    stubber = Stubber(boto3.client(service, **keys))

    class Hook:
        def __init__(self, *, aws_conn_id: str, emr_conn_id: str | None = "", job_name: str | None = None) -> None:
            self.conn = stubber.client

        def add_job_flow_steps(
            self,
            job_flow_id: str,
            steps: list[Any],
            wait_for_completion: bool = False,
            waiter_delay: int | None = None,
            waiter_max_attempts: int | None = None,
            execution_role_arn: str | None = None,
        ) -> list[str]:
            role = {"ExecutionRoleArn": execution_role_arn} if execution_role_arn else {}
            answer = self.conn.add_job_flow_steps(JobFlowId=job_flow_id, Steps=steps, **role)
            return list(answer["StepIds"])

    install(monkeypatch, f"airflow.providers.amazon.aws.hooks.{module}", **{hook: Hook})
    stubber.activate()
    return stubber
