"""Make the tables of docs/reference from dataclasses: fields of targets and sources, options of jobs, settings."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import json
import re
import types
import typing
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_provider_lakecdc.exceptions import CLASSES
from airflow_provider_lakecdc.get_provider_info import get_provider_info
from airflow_provider_lakecdc.governance.discovery import QueryLog
from airflow_provider_lakecdc.submit.failures import SYMPTOMS
from airflow_provider_lakecdc.submit.retry_policy import CLUSTER_RETRY_DELAY, CONFLICT_RETRY_DELAY
from airflow_provider_lakecdc.templates.config import LakeConfig, Retention, SparkConfig
from airflow_provider_lakecdc.templates.schedules import Schedules
from lakecdc.contract.checks import Check
from lakecdc.contract.errors import LakecdcError
from lakecdc.contract.job_options import JobOptions
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.rewriting import StorageClass
from lakecdc.contract.sources import Source
from lakecdc.contract.sources.formats import MessageFormat, RowFormat
from lakecdc.contract.target import Encoding, Target
from lakecdc.metadata.alert_state import Alerts
from lakecdc.metadata.cost import Prices
from lakecdc.metadata.debt import DebtLimits
from lakecdc.metadata.policy import GOVERNED, TablePolicy, Window
from lakecdc.metadata.readers import ReaderName

ROOT = Path(__file__).resolve().parent.parent
#: classes of settings that docs/reference/settings.md has a table of
SETTINGS = (LakeConfig, SparkConfig, Retention, Schedules, DebtLimits, TablePolicy, Window, QueryLog, Prices, Alerts)
#: values of options that show how they are written, by name or by section and name
EXAMPLES: Mapping[str, Any] = json.loads((ROOT / ".ci" / "examples.json").read_text())
COLUMNS = ("field", "type", "default", "meaning", "example")
_PARAMETER = re.compile(r":param (\w+): (.*?)(?=\n\s*:(?:param|raises)|\Z)", re.DOTALL)
_SCALARS = {str: "text", bool: "`true` or `false`", int: "whole number", float: "number"}
#: types with a page or a place that lists their values
_NAMED: dict[Any, str] = {
    ReaderName: "[engine](../guides/readers.md#what-each-engine-reads)",
    MessageFormat: "[format](../guides/ingest-formats.md)",
    RowFormat: "[format of rows](../guides/ingest-files.md#rows)",
    Encoding: "encoding",
    StorageClass: "storage class of S3",
    Check: "[check](targets.md#checks)",
}
_MEBIBYTE = 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Option:
    """One option of a job, or one field of a target or a source.

    :param hint: its type.
    :param default: ``MISSING`` if it is required; None means an empty mapping too.
    :param meaning: one or more sentences.
    """

    name: str
    hint: Any
    default: Any
    meaning: str

    @property
    def is_mapping(self) -> bool:
        """Check whether the option is an object with arbitrary keys."""
        return typing.get_origin(self.hint) in (dict, Mapping)

    def row(self, section: str) -> tuple[str, ...]:
        """Return its cells; ``section`` names the job, target or source."""
        example = json.dumps(self.example(section), ensure_ascii=False)
        return f"`{self.name}`", kind(self.hint, self.name), self._default, cell(self.meaning), cell(f"`{example}`")

    def example(self, section: str) -> Any:
        """Return a value that shows how the option is written."""
        for key in (f"{section}.{self.name}", self.name):
            if key in EXAMPLES:
                return EXAMPLES[key]
        if self.hint is bool:
            return not self.default
        if typing.get_origin(self.hint) is typing.Literal:
            return next(each for each in typing.get_args(self.hint) if each != self.default)
        if self.default not in (dataclasses.MISSING, None, "", 0, (), {}):
            return self.default
        raise KeyError(f"Add an example of {section}.{self.name} to .ci/examples.json.")

    @property
    def _default(self) -> str:
        if self.default is dataclasses.MISSING:
            return "required"
        if self.default is None or self.default in ((), {}, ""):
            return ""
        if self.name.endswith("bytes") and self.default >= _MEBIBYTE:
            return f"`{self.default}` ({self.default // _MEBIBYTE} MiB)"
        return f"`{json.dumps(self.default)}`"


def options_of(described: type[Any]) -> list[Option]:
    """Return the fields of a dataclass: its own, then those of its bases, ``dry_run`` and ``fail_on`` last."""
    hints, fields = typing.get_type_hints(described), {each.name: each for each in dataclasses.fields(described)}
    options: dict[str, Option] = {}
    for owner in described.__mro__:
        for name, meaning in _PARAMETER.findall(inspect.cleandoc(owner.__doc__ or "")):
            if name in options:
                continue
            field = fields[name]
            default = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            options[name] = Option(name, hints[name], default, " ".join(meaning.split()))
    assert set(options) == set(fields) - {"type"}, f"{described.__name__} documents {set(options) ^ set(fields)}"
    last = [options.pop(each.name) for each in dataclasses.fields(JobOptions) if each.name in options]
    return [*options.values(), *last]


def kind(hint: Any, name: str) -> str:
    """Return a type in words; ``name`` is that of the field, after which the section of an object is called."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _NAMED:
        return _NAMED[hint]
    if hint is Any:
        return "secret" if name in ("password", "token") else "any value"
    if origin is typing.Literal:
        return cell(" or ".join(f"`{each}`" for each in arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(kind(each, name) for each in arguments if each is not type(None)))
    if origin is tuple:
        return f"list of {kind(arguments[0], name)}"
    if origin in (dict, Mapping):
        return "object" if arguments[1] is Any else f"object of {kind(arguments[1], name)}"
    return f"[object](#{name})" if dataclasses.is_dataclass(hint) else _SCALARS[hint]


def objects_in(hint: Any) -> Iterator[type[Any]]:
    """Yield the dataclasses in a type, except checks, which have a separate table."""
    if hint in _NAMED:
        return
    if dataclasses.is_dataclass(hint):
        yield typing.cast("type[Any]", hint)
    for each in typing.get_args(hint):
        yield from objects_in(each)


def cell(text: str) -> str:
    """Return text of a docstring as a cell of a table."""
    return text.replace("``", "`").replace("|", "\\|")


def table(*rows: Sequence[str]) -> str:
    """Return a table of Markdown whose first row has the headings."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (rows[0], ["---"] * len(rows[0]), *rows[1:]))


def field_tables(options: Sequence[Option], section: str, level: str) -> Iterator[str]:
    """Yield the table of some fields, then one for each object among them, below headings of a level."""
    yield table(COLUMNS, *(each.row(section) for each in options))
    for each in options:
        for described in objects_in(each.hint):
            summary = cell(" ".join(inspect.cleandoc(described.__doc__ or "").partition("\n\n")[0].split()))
            yield f"{level} `{each.name}`\n\n{summary}\n"
            yield from field_tables(options_of(described), each.name, f"{level}#")


# --- pages --------------------------------------------------------------------------------------------------------


def job_page(summaries: Mapping[str, str], governed: bool) -> str:
    """Return the options of the jobs that policies govern, or of all others.

    :param summaries: the first sentence about each job.
    """
    every = {job: options_of(each) for job, each in OPTIONS.items() if (job in GOVERNED) is governed}
    uses = Counter((each.name, each.meaning, str(each.default)) for options in every.values() for each in options)
    together: dict[str, Option] = {}
    for option in itertools.chain.from_iterable(every.values()):
        if uses[option.name, option.meaning, str(option.default)] > 1:
            together.setdefault(option.name, option)
    parts = ["## Options of several jobs\n", *field_tables(list(together.values()), "several", "###")]
    for job, options in every.items():
        own = [each for each in options if together.get(each.name) != each]
        others = ", ".join(f"`{each.name}`" for each in options if each not in own)
        parts.append(f"## `{job}`\n\n{summaries[job]} [Shared options](#options-of-several-jobs): {others}.\n")
        parts += field_tables(own, job, "###") if own else ()
    return "\n".join(parts)


def target_page() -> str:
    """Return the fields of a target, of the objects in it, and the checks."""
    checks = [
        (f"`{by_type(each)}`", ", ".join(f"`{option.name}`" for option in options_of(each)), cell(each.__doc__ or ""))
        for each in typing.get_args(Check)
    ]
    rows = [(name, own, meaning.partition("\n")[0]) for name, own, meaning in checks]
    return "\n".join(
        [
            *field_tables(options_of(Target), "target", "##"),
            "## Checks\n",
            table(("type", "options", "passes if"), *rows),
        ]
    )


def source_page() -> str:
    """Return the fields of each type of source."""
    parts = []
    for each in typing.get_args(Source):
        summary = " ".join(inspect.cleandoc(each.__doc__ or "").partition("\n:param")[0].split())
        parts += [f"## `{by_type(each)}`\n\n{cell(summary)}\n", *field_tables(options_of(each), by_type(each), "###")]
    return "\n".join(parts)


def by_type(described: type[Any]) -> str:
    """Return the ``type`` of a source or a check."""
    return next(str(each.default) for each in dataclasses.fields(described) if each.name == "type")


def setting_table(name: str) -> str:
    """Return the table of a class of settings, or of a section of Airflow's configuration."""
    classes: dict[str, type[Any]] = {each.__name__: each for each in SETTINGS}
    rows = settings_of(classes[name]) if name in classes else airflow_options(name)
    return table(("setting", "meaning", "default"), *rows)


def settings_of(described: type[Any]) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a class of settings, with the meanings in its docstring."""
    meanings = dict(_PARAMETER.findall(described.__doc__ or ""))
    for field in dataclasses.fields(described):
        meaning = cell(" ".join(meanings[field.name].split()).rstrip("."))
        yield f"`{field.name}`", meaning, setting_default(field)


def setting_default(field: dataclasses.Field[Any]) -> str:
    """Return the default of a setting, as a cell of a table."""
    if field.default_factory is not dataclasses.MISSING:
        # nested settings have a separate table
        return "`{}`" if isinstance(field.default_factory(), dict) else "see below"
    if field.default is dataclasses.MISSING:
        return "required"
    value = list(field.default) if isinstance(field.default, tuple) else field.default
    return "" if value is None else f"`{json.dumps(value)}`"


def airflow_options(section: str) -> Iterator[tuple[str, str, str]]:
    """Yield the rows of a section of Airflow's configuration, as the provider declares it."""
    for option, described in get_provider_info()["config"][section]["options"].items():
        default = described["default"]
        yield f"`{option}`", described["description"].rstrip("."), f"`{default}`" if default else ""


# --- errors -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ErrorClass:
    """A class of errors that jobs raise.

    :param failure_class: its kind in reports.
    :param cause: first paragraph of its docstring.
    :param remedy: what to do; inherited if the docstring has no ``Remedy:``.
    """

    failure_class: str
    cause: str
    remedy: str


def error_classes() -> dict[str, ErrorClass]:
    """Return the errors that jobs raise on purpose, by name, from the source of the library."""
    paths = sorted((ROOT / "spark_jobs").rglob("*.py"))
    nodes = [node for path in paths for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    base = LakecdcError.__name__
    classes = {base: ErrorClass(LakecdcError.failure_class, *_cause_and_remedy(inspect.getdoc(LakecdcError) or ""))}
    while new := [each for each in nodes if each.name not in classes and _parent(each) in classes]:
        for node in new:
            parent = classes[_parent(node)]
            cause, remedy = _cause_and_remedy(ast.get_docstring(node) or "")
            classes[node.name] = ErrorClass(
                _failure_class(node) or parent.failure_class, cause, remedy or parent.remedy
            )
    return {name: each for name, each in classes.items() if not name.startswith("_") and name != base}


def _parent(node: ast.ClassDef) -> str:
    return next((each.id for each in node.bases if isinstance(each, ast.Name)), "")


def _failure_class(node: ast.ClassDef) -> str | None:
    values = [
        each.value
        for each in node.body
        if isinstance(each, ast.Assign) and "failure_class" in ast.unparse(each.targets[0])
    ]
    return next((str(each.value) for each in values if isinstance(each, ast.Constant)), None)


def _cause_and_remedy(docstring: str) -> tuple[str, str]:
    paragraphs = [" ".join(each.split()) for each in docstring.split("\n\n")]
    return paragraphs[0], next(
        (each.removeprefix("Remedy: ") for each in paragraphs if each.startswith("Remedy: ")), ""
    )


def error_page() -> str:
    """Return what jobs raise, with causes and remedies from docstrings, and symptoms of jobs that leave no report."""
    after = {
        "bad input": "never",
        "conflict": f"after {CONFLICT_RETRY_DELAY.seconds} s",
        "cluster": f"after {CLUSTER_RETRY_DELAY.seconds // 60} min",
        "unknown": "after `retry_delay`",
    }
    rows = [("error of the job", "error of the task", "retried", "cause", "remedy")]
    rows += [
        (
            f"`{name}`",
            f"`{CLASSES[each.failure_class].__name__}`",
            after[each.failure_class],
            cell(each.cause),
            cell(each.remedy),
        )
        for name, each in sorted(error_classes().items(), key=lambda item: (item[1].failure_class, item[0]))
    ]
    symptoms = table(("the output has", "what to do"), *((f"`{cell(words)}`", remedy) for words, remedy in SYMPTOMS))
    return f"{table(*rows)}\n## A job that left no report\n\n{symptoms}"
