"""The base of operators whose jobs read a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_provider_lakecdc.hooks.source import source_from_connection
from airflow_provider_lakecdc.operators.base import LakecdcJobOperator


class SourceJobOperator(LakecdcJobOperator):
    """Run one lakecdc job over tables and the source that feeds them.

    :param source: the ``source`` of the job spec, see ``lakecdc.contract.sources``. (templated)
    :param targets: the ``target`` of the job spec, one object per table. (templated)
    :param source_conn_id: connection with the source's address and login: of type ``postgres``, ``mysql`` or ``kafka``;
        for a source of type ``jdbc`` of a database or of type ``jdbc``. (templated)
    """

    template_fields: Sequence[str] = (*LakecdcJobOperator.template_fields, "source", "targets", "source_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **LakecdcJobOperator.template_fields_renderers,
        "source": "json",
        "targets": "json",
    }

    def __init__(
        self,
        *,
        source: Mapping[str, Any],
        targets: Sequence[Mapping[str, Any]],
        source_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.targets = targets
        self.source_conn_id = source_conn_id

    def spec_parts(self, secrets: dict[str, str]) -> dict[str, Any]:
        """Return the source, completed from its connection, and the targets."""
        source = dict(self.source)
        if self.source_conn_id:
            source, source_secrets = source_from_connection(source, self.source_conn_id)
            secrets.update(source_secrets.values)
        return {"source": source, "target": [dict(target) for target in self.targets]}
