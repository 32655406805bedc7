"""The JSON schema of the configuration, generated from its classes.

``python -m airflow_provider_lakecdc.templates.schema`` prints it; ``docs/lakecdc.schema.json`` is a copy.
"""

from __future__ import annotations

import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping
from typing import Any

from airflow_provider_lakecdc.templates.config import LakeConfig
from airflow_provider_lakecdc.templates.schedules import DAGS
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.sources import FEEDING, Source
from lakecdc.contract.target import Target

_PARAMETER = re.compile(r":param (\w+): (.*?)(?=\n\s*:(?:param|raises)|\Z)", re.DOTALL)
_SCALARS: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def config_schema() -> dict[str, Any]:
    """Return the schema of the configuration for :func:`airflow_provider_lakecdc.templates.load_config`.

    Only the ``type`` of a source is required, since the connection ``source_conn_id`` may provide the rest.
    """
    root = _of_class(LakeConfig)
    root["properties"]["source"] |= {"$ref": "#/$defs/source"}
    root["properties"]["targets"]["items"] = {"$ref": "#/$defs/target"}
    jobs = {job: {"$ref": f"#/$defs/{job}"} for job in OPTIONS}
    by_dag = {f"{dag}.{job}": schema for dag in DAGS for job, schema in jobs.items()}
    root["properties"]["options"] |= {"properties": {**jobs, **by_dag}, "additionalProperties": False}
    policy = root["properties"]["policy"]["additionalProperties"]["properties"]
    policy["options"] |= {"properties": jobs, "additionalProperties": False}
    dags = {dag: {"type": "number", "exclusiveMinimum": 0} for dag in DAGS if dag != "ingest"}
    root["properties"]["budgets"] |= {"properties": dags, "additionalProperties": False}
    # for editors
    root["properties"]["$schema"] = {"type": "string"}
    definitions = {job: _of_class(options) for job, options in OPTIONS.items()}
    definitions |= {"target": _of_class(Target), "source": _sources()}
    schema = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": schema, "title": "lakecdc", **root, "$defs": definitions}


def _sources() -> dict[str, Any]:
    """Return the schema of a source, whose ``type`` decides on the other members."""
    kinds = {str(_type_of(each)): each for each in typing.get_args(Source) if _type_of(each) in FEEDING}
    choices = [
        {"if": {"properties": {"type": {"const": name}}}, "then": {**_of_class(each), "required": ["type"]}}
        for name, each in kinds.items()
    ]
    return {"required": ["type"], "properties": {"type": {"enum": list(kinds)}}, "allOf": choices}


def _type_of(described: type[Any]) -> Any:
    """Return the fixed value of a dataclass's field ``type``; None without one."""
    return next((each.default for each in dataclasses.fields(described) if each.name == "type"), None)


def _of_class(described: type[Any]) -> dict[str, Any]:
    hints, meanings = typing.get_type_hints(described), _meanings(described)
    fields = dataclasses.fields(described)
    properties = {
        each.name: _of_type(hints[each.name]) | ({"description": meanings[each.name]} if each.name in meanings else {})
        for each in fields
        if each.init
    }
    required = [
        each.name
        for each in fields
        if (each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING) or each.name == "type"
    ]
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _meanings(described: type[Any]) -> dict[str, str]:
    """Return the descriptions of a class's fields from its docstring and those of its bases."""
    meanings: dict[str, str] = {}
    for each in reversed(described.__mro__):
        for name, text in _PARAMETER.findall(each.__doc__ or ""):
            meanings[name] = " ".join(text.split()).replace("``", "`")
    return meanings


def _of_type(hint: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        kinds = [{"type": "null"} if each is type(None) else _of_type(each) for each in arguments]
        return {"anyOf": kinds}
    if origin is tuple:
        return {"type": "array", "items": _of_type(arguments[0])}
    if origin in (dict, Mapping) or hint in (dict, Mapping):
        return {"type": "object", "additionalProperties": _of_type(arguments[1]) if arguments else True}
    if dataclasses.is_dataclass(hint):
        return _of_class(hint)  # type: ignore[arg-type]
    return {"type": _SCALARS[hint]} if hint in _SCALARS else {}


if __name__ == "__main__":
    print(json.dumps(config_schema(), indent=1))
