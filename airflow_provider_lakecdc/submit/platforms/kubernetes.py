"""Submission to Kubeflow's Spark operator by the KubernetesHook of Airflow's Kubernetes provider."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_provider_lakecdc.submit.submitter import Application, RunStatus, Submitter
from lakecdc.contract.runtime import SPARK_MINOR

_GROUP, _VERSION, _PLURAL = "sparkoperator.k8s.io", "v1beta2", "sparkapplications"
_FAILURES = ("FAILED", "SUBMISSION_FAILED", "INVALIDATING")
_LAST_LINES = 200


@dataclass(frozen=True)
class KubernetesSettings:
    """Settings of the connection.

    :param image: image of driver and executors, with Spark and the Python packages of executors.
    :param namespace: where applications are created.
    :param service_account: of the driver.
    :param driver: further members of the application's ``driver``, such as ``envFrom`` and ``cores``.
    :param executor: the same of its ``executor``.
    """

    image: str
    namespace: str = "default"
    service_account: str = "spark"
    driver: dict[str, Any] = field(default_factory=dict)
    executor: dict[str, Any] = field(default_factory=dict)


class SparkApplications(Submitter):
    """``SparkApplication`` objects, which the Spark operator of the cluster runs."""

    settings = KubernetesSettings

    def __init__(self, conn_id: str, settings: KubernetesSettings) -> None:
        from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

        self._settings, self._kubernetes = settings, KubernetesHook(conn_id=conn_id)
        self._kind = {"group": _GROUP, "version": _VERSION, "plural": _PLURAL, "namespace": settings.namespace}

    def preview(self, application: Application) -> dict[str, Any]:
        """Return the object without its name."""
        env = [{"name": name, "value": value} for name, value in application.env.items()]
        deps = {"pyFiles": application.py_files, "packages": application.packages, "archives": application.archives}
        return {
            "apiVersion": f"{_GROUP}/{_VERSION}",
            "kind": "SparkApplication",
            "metadata": {"namespace": self._settings.namespace},
            "spec": {
                "type": "Python",
                "pythonVersion": "3",
                "mode": "cluster",
                "sparkVersion": f"{SPARK_MINOR}.0",
                "image": self._settings.image,
                "mainApplicationFile": application.script,
                "arguments": list(application.args),
                "deps": {name: list(values) for name, values in deps.items() if values},
                "sparkConf": dict(application.conf),
                "restartPolicy": {"type": "Never"},
                "driver": {"serviceAccount": self._settings.service_account, "env": env, **self._settings.driver},
                "executor": {"env": env, **self._settings.executor},
            },
        }

    def start(self, application: Application) -> str:
        name = application.unique_name()
        body = self.preview(application)
        body["metadata"]["name"] = name
        self._kubernetes.create_custom_object(body=body, **self._kind)
        return name

    def status(self, run_id: str) -> RunStatus:
        try:
            state = self._status(run_id).get("applicationState") or {}
        except Exception as error:
            # Kubernetes' ApiException
            if getattr(error, "status", None) != 404:
                raise
            return RunStatus("failed", "the SparkApplication was deleted")
        if state.get("state") in _FAILURES:
            return RunStatus("failed", f"{state['state']}: {state.get('errorMessage', '')}")
        return RunStatus("succeeded" if state.get("state") == "COMPLETED" else "running")

    def stop(self, run_id: str | None) -> None:
        """Delete the object, and its driver with it."""
        if run_id is not None:
            self._kubernetes.delete_custom_object(name=run_id, **self._kind)

    def link(self, run_id: str) -> str | None:
        """Return the address of Spark's page, if the Spark operator makes an ingress for it."""
        return (self._status(run_id).get("driverInfo") or {}).get("webUIIngressAddress") or None

    def last_lines(self, run_id: str | None) -> list[str]:
        """Return the last lines of the driver's log."""
        pod = (self._status(run_id).get("driverInfo") or {}).get("podName") if run_id else None
        if not pod:
            return []
        log = self._kubernetes.get_pod_logs(pod, namespace=self._settings.namespace)
        text = log.decode(errors="replace") if isinstance(log, bytes) else str(log)
        return text.splitlines()[-_LAST_LINES:]

    def _status(self, run_id: str) -> dict[str, Any]:
        application: dict[str, Any] = self._kubernetes.get_custom_object(name=run_id, **self._kind)
        return application.get("status") or {}
