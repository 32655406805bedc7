"""Generate what the code determines: operators' signatures and docstrings, tables of docs, the schema, the map.

The dataclasses in ``lakecdc.contract`` are the only list of options that people edit; ``make generate`` writes the rest
as plain source, and a test fails where it differs. In an operator's file the summary of the docstring and every method
except ``__init__`` are written by hand. The map of the architecture comes from import-linter's contracts and from the
docstrings of packages. Tables of docs/reference are made in ``reference_pages``.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import subprocess
import sys
import textwrap
import tomllib
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reference_pages import Option, error_page, job_page, options_of, setting_table, source_page, table, target_page

from airflow_provider_lakecdc.operators.base import LakecdcJobOperator
from airflow_provider_lakecdc.templates.schema import config_schema
from lakecdc.contract.job_options import JobOptions, Outcome
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.rewriting import Curve, StorageClass, Verify
from lakecdc.contract.spec import SOURCE_JOBS
from lakecdc.metadata.readers import READERS, Reader, ReaderName

ROOT = Path(__file__).resolve().parent.parent
OPERATORS = ROOT / "airflow_provider_lakecdc" / "operators"
RUFF = Path(sys.executable).with_name("ruff")
WIDTH = 120
#: parameters of jobs with a source
SOURCE_SIGNATURE = {
    "source": "Mapping[str, Any]",
    "targets": "Sequence[Mapping[str, Any]]",
    "source_conn_id": "str | None = None",
}
IMPORTS = """from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal
from lakecdc.contract.job_options import Outcome
from lakecdc.contract.rewriting import Curve, StorageClass, Verify
from lakecdc.metadata.readers import ReaderName
"""
_SETTING_TABLE = re.compile(r"(<!-- made from (\w+) -->\n).*?(?=<!-- until here -->)", re.DOTALL)
_ALIASES = {Curve: "Curve", Outcome: "Outcome", ReaderName: "ReaderName"}
_ALIASES |= {StorageClass: "StorageClass", Verify: "Verify"}
_SCALARS = {str: "str", bool: "bool", int: "int", float: "float"}
#: arguments of every job operator that have the name of an option
_BASE_ARGUMENTS = set(inspect.signature(inspect.unwrap(LakecdcJobOperator.__init__)).parameters)


def main() -> None:
    """Write each file that changed, and print its name."""
    for path, text in outputs():
        if path.read_text() != text:
            path.write_text(text)
            print(path.relative_to(ROOT))


def outputs() -> Iterator[tuple[Path, str]]:
    """Yield each file with generated parts, with its new text."""
    operators = dict(job_operators())
    for job, (path, name) in operators.items():
        yield path, with_operator(path, name, job)
    classes = {job: f"{path.stem}.{name}" for job, (path, name) in operators.items()}
    summaries = {job: summary_of(*place) for job, place in operators.items()}
    pages = {
        "reference/operators.md": operator_table(classes),
        "reference/jobs.md": job_page(summaries, governed=False),
        "reference/maintenance-jobs.md": job_page(summaries, governed=True),
        "reference/targets.md": target_page(),
        "reference/sources.md": source_page(),
        "operations/troubleshooting.md": error_page(),
        "concepts/architecture.md": house_map(import_contracts()),
        "guides/readers.md": table(*reader_rows()),
    }
    for page, generated in pages.items():
        path = ROOT / "docs" / page
        yield path, between_marks(path.read_text(), generated)
    settings = ROOT / "docs" / "reference" / "settings.md"
    yield settings, _SETTING_TABLE.sub(lambda place: f"{place[1]}\n{setting_table(place[2])}\n", settings.read_text())
    yield ROOT / "docs" / "lakecdc.schema.json", json.dumps(config_schema(), indent=1) + "\n"


def reader_rows() -> Iterator[tuple[str, ...]]:
    """Yield the headings, then the rows of a table of what each engine reads."""
    facts = [each.name for each in dataclasses.fields(Reader) if each.type == "bool | None"]
    answers = {True: "yes", False: "no", None: "not known"}
    yield "name", "engine", "newest format version", *(fact.replace("_", " ") for fact in facts), "run in tests"
    for each in READERS:
        reads = (answers[vars(each)[fact]] for fact in facts)
        yield f"`{each.short}`", each.name, str(each.max_format_version), *reads, each.tried or "no"


def job_operators() -> Iterator[tuple[str, tuple[Path, str]]]:
    """Yield each job with the file and the class of its operator, in the order of the jobs."""
    places = {
        job: (path, node.name)
        for path in sorted(OPERATORS.glob("*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and (job := job_of(node)) is not None
    }
    for job in OPTIONS:
        yield job, places[job]


def job_of(node: ast.ClassDef) -> str | None:
    """Return the job in an operator's class, or None."""
    named = {each.arg: each.value for each in node.keywords}
    return str(ast.literal_eval(named["job"])) if "job" in named else None


def argument(option: Option) -> str:
    """Return the argument of an option in an operator's signature; everything but text may be a template."""
    kind, default = annotation(option.hint), option.default
    if "str" not in kind.split(" | "):
        kind = kind.replace(" | None", "") + " | str" + (" | None" if " | None" in kind else "")
    if option.is_mapping:
        kind, default = f"{kind} | None", None
    return f"{option.name}: {kind} = {literal(default)}"


def annotation(hint: Any) -> str:
    """Return a type's source in an operator; objects of the spec become mappings."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is typing.Literal:
        return _ALIASES.get(hint) or f"Literal[{', '.join(json.dumps(each) for each in arguments)}]"
    if origin in (typing.Union, types.UnionType):
        kinds = list(dict.fromkeys(annotation(each) for each in arguments if each is not type(None)))
        return " | ".join([*kinds, "None"]) if type(None) in arguments else " | ".join(kinds)
    if origin is tuple:
        return f"Sequence[{annotation(arguments[0])}]"
    if origin in (dict, Mapping):
        return f"Mapping[{annotation(arguments[0])}, {annotation(arguments[1])}]"
    return "Mapping[str, Any]" if dataclasses.is_dataclass(hint) else "Any"


def literal(value: Any) -> str:
    """Return the source of a default, with digits in groups of three."""
    if isinstance(value, bool | str) or value is None:
        return repr(value)
    return f"{value:_}" if isinstance(value, int | float) else repr(value)


# --- operators ----------------------------------------------------------------------------------------------------


def with_operator(path: Path, name: str, job: str) -> str:
    """Return an operator's file with the docstring and ``__init__`` generated from its job's options.

    :param name: of the class.
    """
    text, options = path.read_text(), options_of(OPTIONS[job])
    (node,) = (each for each in ast.parse(text).body if isinstance(each, ast.ClassDef) and each.name == name)
    lines = text.splitlines(keepends=True)
    (method,) = (each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__")
    lines[method.lineno - 1 : method.end_lineno] = [init_source(job, options)]
    docstring = node.body[0]
    summary = (ast.get_docstring(node) or "").partition("\n:param ")[0].rstrip()
    lines[docstring.lineno - 1 : docstring.end_lineno] = [docstring_source(summary, job, options)]
    future = "from __future__ import annotations\n"
    return linted("".join(lines).replace(future, future + IMPORTS, 1), path)


def docstring_source(summary: str, job: str, options: list[Option]) -> str:
    """Return the docstring of an operator's class, indented."""
    shared = shared_options(OPTIONS[job])
    elsewhere = {each.name: each.meaning for owner in shared for each in options_of(owner)}
    meanings = {each.name: each.meaning for each in options if elsewhere.get(each.name) != each.meaning}
    base = ":class:`LakecdcJobOperator`"
    if job in SOURCE_JOBS:
        base = ":class:`SourceJobOperator`, also for ``source``, ``targets`` and ``source_conn_id``"
    places = ", ".join(f"``{owner.__qualname__}``" for owner in shared)
    meanings["kwargs"] = f"see {base}. Other options: {places} in ``lakecdc.contract``."
    parameters = [
        textwrap.fill(
            f":param {name}: {meaning}",
            WIDTH,
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for name, meaning in meanings.items()
    ]
    return textwrap.indent(f'"""{summary}\n\n', " " * 4) + "\n".join(parameters) + '\n    """\n'


def shared_options(described: type[JobOptions]) -> list[type[JobOptions]]:
    """Return the classes of options that a job shares with others, without bases of these classes."""
    jobs = list(OPTIONS.values())
    shared = [owner for owner in described.__mro__ if sum(owner in of_job.__mro__ for of_job in jobs) > 1]
    shared = [owner for owner in shared if dataclasses.is_dataclass(owner)]
    return [owner for owner in shared if not any(issubclass(other, owner) for other in shared if other is not owner)]


def init_source(job: str, options: list[Option]) -> str:
    """Return the source of an operator's ``__init__``, indented."""
    signature = SOURCE_SIGNATURE if job in SOURCE_JOBS else {}
    arguments = [*map(": ".join, signature.items()), *(argument(each) for each in options), "**kwargs: Any"]
    passed = [f"{name}={name}" for name in signature]
    passed += [f"{each.name}={each.name}" for each in options if each.name in _BASE_ARGUMENTS]
    source = (
        f"def __init__(self, *, {', '.join(arguments)},) -> None:\n"
        f"    super().__init__({', '.join([*passed, 'options=self.options_in(locals())'])}, **kwargs)\n"
    )
    return textwrap.indent(source, " " * 4)


def linted(text: str, path: Path) -> str:
    """Return formatted source with sorted imports and without unused ones."""
    for command in (("check", "--select", "F401,I", "--fix", "--quiet"), ("format", "--quiet")):
        done = subprocess.run(
            [str(RUFF), *command, "--stdin-filename", str(path), "-"], input=text, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        text = done.stdout
    return text


# --- tables of the docs -------------------------------------------------------------------------------------------


def between_marks(page: str, generated: str) -> str:
    """Return a page of docs with new text between its marks."""
    begin, end = "<!-- begin generated by make generate -->\n", "<!-- end generated -->"
    before, _, rest = page.partition(begin)
    _, _, after = rest.partition(end)
    assert rest and after, f"the page lacks {begin} or {end}"
    return f"{before}{begin}\n{generated}\n{end}{after}"


def operator_table(classes: Mapping[str, str]) -> str:
    """Return the table of operators and their arguments."""
    rows = ["| operator, below `airflow_provider_lakecdc.operators` | its own arguments |", "|---|---|"]
    common = {each.name for each in dataclasses.fields(JobOptions)}
    for job, name in classes.items():
        own = [each.name for each in options_of(OPTIONS[job]) if each.name not in common]
        arguments = [*(SOURCE_SIGNATURE if job in SOURCE_JOBS else ()), *own]
        rows.append(f"| `{name}` | {', '.join(f'`{each}`' for each in arguments)} |")
    return "\n".join(rows) + "\n"


def summary_of(path: Path, name: str) -> str:
    """Return the first sentence about an operator's class."""
    (node,) = (
        each for each in ast.parse(path.read_text()).body if isinstance(each, ast.ClassDef) and each.name == name
    )
    return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split()).replace("``", "`")


# --- the map of the house -----------------------------------------------------------------------------------------


def import_contracts() -> list[dict[str, Any]]:
    """Return the contracts that import-linter checks."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    contracts: list[dict[str, Any]] = tools["importlinter"]["contracts"]
    return contracts


def house_map(contracts: list[dict[str, Any]]) -> str:
    """Return the part of the architecture about rooms: layers, exceptions and sentences of both packages."""
    layered = [each for each in contracts if each["type"] == "layers"]
    parts = [part for contract in layered for part in package_map(contract)]
    rules = "\n".join(f"- {each['name']}" for each in contracts if each not in layered)
    return "\n".join([*parts, f"### Rules across rooms\n\n{rules}\n"])


def package_map(contract: Mapping[str, Any]) -> Iterator[str]:
    """Yield the parts of the map for one package.

    :param contract: its contract of layers.
    """
    (package,) = contract["containers"]
    layers = [re.split(r" *([|:]) *", layer) for layer in contract["layers"]]
    drawn = ["".join({"|": "   ", ":": " ⇄ "}.get(each, each) for each in layer) for layer in layers]
    yield f"### {package}\n\n```text\n" + "\n".join(drawn) + "\n```\n"
    rooms = [room for layer in layers for name in layer[::2] for room in rooms_below(f"{package}.{name}")]
    rows = [f"| `{room.removeprefix(f'{package}.')}` | {first_sentence(room)} |" for room in rooms]
    yield "\n".join(["| room | what it does |", "|---|---|", *rows]) + "\n"
    if exceptions := contract.get("ignore_imports"):
        yield "Exceptions, by name; the list only shrinks:\n"
        yield "\n".join(f"- `{each.replace(' -> ', '` → `')}`" for each in exceptions) + "\n"


def rooms_below(room: str) -> Iterator[str]:
    """Yield a module or package, then the packages in it, at any depth."""
    yield room
    folder = source_of(room).parent
    if source_of(room).name == "__init__.py":
        for inner in sorted(path.parent for path in folder.rglob("*/__init__.py")):
            yield ".".join([room, *inner.relative_to(folder).parts])


def source_of(room: str) -> Path:
    """Return the file that has the docstring of a module or package."""
    root = ROOT / "spark_jobs" if room.startswith("lakecdc.") else ROOT
    path = root.joinpath(*room.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def first_sentence(room: str) -> str:
    """Return the first paragraph of the docstring of a module or package, as a cell of a table."""
    docstring = ast.get_docstring(ast.parse(source_of(room).read_text()))
    assert docstring, f"{room} has no docstring, which docs/concepts/architecture.md shows"
    return " ".join(docstring.partition("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    main()
