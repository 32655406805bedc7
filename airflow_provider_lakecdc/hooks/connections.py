"""Airflow connections for jobs: lookup, and secrets as references in the spec with values only in the environment."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from airflow.sdk import BaseHook, Connection
from airflow.sdk.exceptions import AirflowNotFoundException

from airflow_provider_lakecdc.exceptions import JobBadInputError
from lakecdc.contract.secrets import is_reference, is_secret

PREFIX = "LAKECDC_SECRET_"
_SWITCHES = {"true", "false", ""}


@dataclass
class SecretEnvironment:
    """Environment variables with the secrets of a job; the scope, such as a connection id, keeps them apart."""

    scope: str
    values: dict[str, str] = field(default_factory=dict, repr=False)

    def refer(self, key: str, value: str) -> dict[str, str]:
        """Store a value and return its reference for the spec; the property's key is part of the variable's name."""
        readable = re.sub(r"\W+", "_", f"{self.scope}_{key}", flags=re.ASCII).upper()
        # the hash distinguishes a.b and a_b
        digest = hashlib.sha256(f"{self.scope}\n{key}".encode()).hexdigest()[:12].upper()
        name = f"{PREFIX}{readable}_{digest}"
        self.values[name] = value
        return {"env": name}

    def refer_if_secret(self, key: str, value: Any) -> Any:
        """Return ``value`` or, if its key or a password in it makes it secret, a reference to it."""
        if is_reference(value) or not is_secret(key, str(value)):
            return value
        return self.refer(key, str(value))

    def hide_from_logs(self) -> None:
        """Register every value with Airflow's secret masker, in the task and in its supervisor."""
        from airflow.sdk.log import mask_secret

        for value in self.values.values():
            # masking "false" would make logs unreadable
            if value.lower() not in _SWITCHES:
                mask_secret(value)


def find_connection(conn_id: str, purpose: str, example: str) -> Connection:
    """Look up a connection; purpose and JSON example are for the error.

    :raises JobBadInputError: it does not exist.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        raise JobBadInputError(
            f"Connection {conn_id!r} {purpose} does not exist.",
            hint=f"Create it, such as by an environment variable: AIRFLOW_CONN_{conn_id.upper()}='{example}'.",
        ) from error
