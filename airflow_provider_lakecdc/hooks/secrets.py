"""Secrets of Airflow connections on their way to a job: references in the spec, values in the environment only."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

from lakecdc.contract.secrets import is_reference, is_secret

PREFIX = "LAKECDC_SECRET_"
_SWITCHES = {"true", "false", ""}


@dataclass
class SecretEnvironment:
    """Collects the values that a job needs in its environment.

    :param scope: tells the secrets of one connection from those of another, such as its id.
    """

    scope: str
    values: dict[str, str] = field(default_factory=dict, repr=False)

    def refer(self, key: str, value: str) -> dict[str, str]:
        """Keep ``value`` aside and return the reference that stands for it in the spec.

        :param key: name of the property, part of the variable's name.
        """
        readable = re.sub(r"\W+", "_", f"{self.scope}_{key}", flags=re.ASCII).upper()
        # a.b and a_b read alike as variables
        told_apart = hashlib.sha256(f"{self.scope}\n{key}".encode()).hexdigest()[:12].upper()
        name = f"{PREFIX}{readable}_{told_apart}"
        self.values[name] = value
        return {"env": name}

    def refer_if_secret(self, key: str, value: Any) -> Any:
        """Return ``value`` as it may stand in a spec.

        :param key: name of the property; it and passwords inside the value tell a secret.
        """
        if is_reference(value) or not is_secret(key, str(value)):
            return value
        return self.refer(key, str(value))

    def hide_from_logs(self) -> None:
        """Register every value with Airflow's secret masker, in the task and in its supervisor."""
        from airflow.sdk.log import mask_secret

        for value in self._maskable():
            mask_secret(value)

    async def ahide_from_logs(self) -> None:
        """The same for a trigger."""
        from airflow.sdk.log import amask_secret

        for value in self._maskable():
            await amask_secret(value)

    def _maskable(self) -> list[str]:
        # hiding the word "false" would make every log unreadable
        return [value for value in self.values.values() if value.lower() not in _SWITCHES]
