"""The spec of one job run and everything that is submitted with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

from airflow_provider_lakecdc.documents.store import Documents
from airflow_provider_lakecdc.exceptions import JobBadInputError
from airflow_provider_lakecdc.hooks.catalog import CatalogConnection
from lakecdc.contract.errors import SpecError
from lakecdc.contract.fields import refuse_unknown
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.spec import GOVERN, VERSION, JobSpec, parse_spec


@dataclass(frozen=True)
class Submission:
    """What goes to spark-submit.

    :param document: the spec, secrets replaced by references.
    :param spec: the same, parsed and checked.
    :param documents: where spec and report lie.
    :param secrets: values of the references by name of their environment variable.
    :param driver_is_here: the job's driver runs in this worker, not on the cluster.
    """

    document: dict[str, Any]
    spec: JobSpec
    documents: Documents
    secrets: dict[str, str] = field(repr=False)
    driver_is_here: bool = True

    @property
    def text(self) -> str:
        """The spec as it is written."""
        return json.dumps(self.document, indent=2)


def spec_document(
    job: str, catalog: CatalogConnection, tables: Sequence[str], options: Mapping[str, Any], **parts: Any
) -> dict[str, Any]:
    """Put a job spec together.

    :param options: the job's options; text where a number or a switch belongs (a rendered template) is converted.
    :param parts: ``source`` and ``target`` of an ingest job.
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
    """Refuse before a Spark application is started what the job would refuse.

    :raises JobBadInputError: with the contract's own message.
    """
    try:
        return parse_spec(document, job)
    except SpecError as error:
        raise JobBadInputError(f"The spec of the job {job} is wrong: {error}") from error


def check_conf(conf: Mapping[str, Any] | None, known: Sequence[str]) -> None:
    """Refuse a DAG run whose ``conf`` has a key that nobody looks at.

    :param known: keys that somebody does.
    :raises JobBadInputError: with the nearest known one.
    """
    try:
        refuse_unknown(conf or {}, set(known), "the run's conf")
    except SpecError as error:
        raise JobBadInputError(str(error), hint="Nothing has been done; trigger another run.") from error


def typed_options(job: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the text that templates leave turned into numbers, switches and lists where the job wants those."""
    hints = get_type_hints(OPTIONS[job]) if job in OPTIONS else {}
    typed = {name: _typed(value, hints.get(name)) for name, value in options.items()}
    if job == GOVERN:
        typed["steps"] = [_typed_step(s) if isinstance(s, Mapping) else s for s in typed.get("steps", ())]
    return typed


def is_true(value: bool | str) -> bool:
    """Whether an argument that may have been rendered from a template says yes."""
    return str(value).lower() == "true"


def table_list(tables: str | Sequence[str]) -> list[str]:
    """Tables as a list; a rendered template may be a JSON list or names with commas between."""
    if not isinstance(tables, str):
        return list(tables)
    text = tables.strip()
    if text.startswith("["):
        # Jinja renders a list in Python's notation
        return [str(table) for table in json.loads(text.replace("'", '"'))]
    return [part.strip() for part in text.split(",") if part.strip()]


def _typed_step(step: Any) -> Any:
    """A step of ``govern`` with its tables and options typed; what is none is left to the contract."""
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
