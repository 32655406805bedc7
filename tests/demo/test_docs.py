"""README and docs: examples are parsed, imported and compared with the code."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import jsonschema
import psycopg
import pytest
from rich.console import Console

from airflow_provider_lakecdc.__main__ import parser
from airflow_provider_lakecdc.cli.definition import get_lakecdc_commands
from airflow_provider_lakecdc.operators.source_job import SourceJobOperator
from demo.readme import with_sample
from demo.run import Demo
from demo.settings import Settings
from lakecdc.contract.fields import coerce
from lakecdc.contract.options import OPTIONS
from lakecdc.contract.report import parse_report
from lakecdc.contract.sources import Source
from lakecdc.contract.sources.files import FilesSource
from lakecdc.contract.sources.jdbc import JdbcSource
from lakecdc.contract.sources.kafka import KafkaSource
from lakecdc.contract.sources.mysql import MysqlSource
from lakecdc.contract.sources.postgres import PostgresSource
from lakecdc.contract.spec import parse_spec
from lakecdc.contract.target import Target, parse_targets
from local_services.paths import reachable_folder
from local_services.postgres import Postgres

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DOCS = [page for page in PAGES if page.parent != ROOT]
#: pages that are lists
WITHOUT_EXAMPLE = {"architecture", "faq", "glossary"}
_BLOCK = re.compile(r"^```(\w+) (\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")


def blocks(kind: str) -> list[Any]:
    """Return every block of a kind, such as ``json spec``, with its page as the test's name."""
    return [
        pytest.param(block[3], id=f"{page.stem}-{number}")
        for page in PAGES
        for number, block in enumerate(_BLOCK.finditer(page.read_text()))
        if f"{block[1]} {block[2]}" == kind
    ]


def rows(page: str, columns: int) -> Iterator[list[str]]:
    """Yield the cells of a page's tables with so many columns, without headings."""
    (path,) = (ROOT / "docs").rglob(page)
    for line in path.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if len(cells) == columns and set(cells[-1]) != {"-"}:
            yield cells


def quoted(cell: str) -> list[str]:
    """Return the texts in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("text", blocks("json spec"))
def test_specs_are_accepted(text: str) -> None:
    parse_spec(json.loads(text))


@pytest.mark.parametrize("text", blocks("json report"))
def test_reports_are_accepted(text: str) -> None:
    assert parse_report(json.loads(text)).exit_code() == 3


@pytest.mark.parametrize("text", blocks("json target"))
def test_targets_are_accepted(text: str) -> None:
    parse_targets(json.loads(text))


_IN_AIRFLOW = """
import json, sys, warnings
from airflow.dag_processing.dagbag import DagBag
from airflow.exceptions import RemovedInAirflow4Warning
from airflow.sdk import Connection
from airflow.utils.deprecation_tools import DeprecatedImportWarning
from airflow_provider_lakecdc import templates
from airflow_provider_lakecdc.hooks.catalog import catalog_from_connection

# by -W they would be unknown: Python reads that before it can import Airflow
for category in (RemovedInAirflow4Warning, DeprecatedImportWarning):
    warnings.simplefilter("error", category)

def dags(file):
    bag = DagBag(file)
    assert not bag.import_errors, bag.import_errors
    return {dag.dag_id: sorted(dag.task_ids) for dag in bag.dags.values()}

def config(file):
    found = templates.load_config(file)
    names = [f"{often}_governance" for often in ("hourly", "nightly", "weekly")]
    names += ["ingest"] if "source" in json.load(open(file)) else []
    return [(name, getattr(templates, f"{name}_dag")(found).dag_id) for name in names]

def connection(file):
    return catalog_from_connection(Connection.from_json(open(file).read(), conn_id="lake")).name

def tried(do, file):
    try:
        return do(file)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

print(json.dumps([tried(globals()[kind], file) for kind, file in json.loads(sys.argv[1])]))
"""
_KINDS = {"dags": ("python dag", "py"), "config": ("json config", "json"), "connection": ("json connection", "json")}


@pytest.fixture(scope="module")
def in_airflow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Load the examples in one process with an empty Airflow home; return results, or the text of an error, by text."""
    folder = tmp_path_factory.mktemp("examples")
    texts = [(kind, text, end) for kind, (label, end) in _KINDS.items() for text in map(_text, blocks(label))]
    files = []
    for number, (kind, text, end) in enumerate(texts):
        file = folder / f"example_{number}.{end}"
        file.write_text(text)
        files.append((kind, str(file)))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "LAKECDC_"))}
    paths = [str(ROOT), str(ROOT / "spark_jobs"), environment.get("PYTHONPATH", "")]
    environment |= {"AIRFLOW_HOME": str(folder), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run([sys.executable, "-c", _IN_AIRFLOW, json.dumps(files)],
                          env=environment, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.strip().splitlines()[-1])
    return {text: result for (_, text, _), result in zip(texts, results, strict=True)}


def _text(block: Any) -> str:
    return str(block.values[0])


@pytest.mark.parametrize("text", blocks("python dag"))
def test_dag_examples_are_imported(text: str, in_airflow: dict[str, Any]) -> None:
    tasks_by_dag = in_airflow[text]
    assert isinstance(tasks_by_dag, dict), tasks_by_dag
    assert len(tasks_by_dag) == 1 and all(tasks_by_dag.values())


def test_the_readmes_dag_has_twenty_lines_and_two_tasks(in_airflow: dict[str, Any]) -> None:
    (text,) = [block[3] for block in _BLOCK.finditer((ROOT / "README.md").read_text()) if block[2] == "dag"]
    assert len([line for line in text.splitlines() if line.strip()]) <= 20
    assert in_airflow[text] == {"shop_to_lake": ["ingest", "rewrite_delete_files"]}
    assert "retry_policy()" in text


def test_the_readmes_sample_matches_the_demos_output() -> None:
    readme = (ROOT / "README.md").read_text()
    steps = Demo(Settings(), Console()).progress.steps
    (sample,) = [text for text in re.split(r"<!-- .* -->", readme) if "seed 42" in text]
    numbers = [int(number) for number in re.findall(rf"^    \[ ?(\d+)/{steps}\] ", sample, re.MULTILINE)]
    assert (numbers[0], numbers[-1]) == (1, steps)
    output = "".join(line.removeprefix("    ") for line in sample.splitlines(keepends=True)).lstrip("\n")
    # made from itself, the sample is unchanged but for the mark of omitted lines
    assert with_sample(readme, output) == readme


@pytest.mark.parametrize("text", blocks("json config"))
def test_configurations_make_dags(text: str, in_airflow: dict[str, Any]) -> None:
    dags = in_airflow[text]
    assert isinstance(dags, list) and len(dags) >= 2, dags
    assert all(dag_id == f"lakecdc_{name}" for name, dag_id in dags)


@pytest.mark.parametrize("text", blocks("json connection"))
def test_connections_name_a_catalog(text: str, in_airflow: dict[str, Any]) -> None:
    assert in_airflow[text] == "lake"


def test_generated_pages_are_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    generate = runpy.run_path(str(ROOT / ".ci" / "generate.py"))
    stale = [str(path.relative_to(ROOT)) for path, text in generate["outputs"]() if path.read_text() != text]
    assert stale == [], "run make generate"


def test_examples_of_options_have_their_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / ".ci"))
    pages = importlib.import_module("reference_pages")

    def check(described: type[Any], section: str) -> Iterator[str]:
        for option in pages.options_of(described):
            coerce(option.hint, option.example(section), f"{section}.{option.name}")
            yield option.name
            for inner in pages.objects_in(option.hint):
                yield from check(inner, option.name)

    described = [*OPTIONS.items(), ("target", Target), *((pages.by_type(each), each) for each in get_args(Source))]
    used = {name for section, each in described for name in check(each, section)}
    assert {name.rpartition(".")[2] for name in pages.EXAMPLES} - used == set()


def test_every_operator_is_listed_with_its_arguments() -> None:
    listed = {quoted(name)[0]: quoted(arguments) for name, arguments in rows("operators.md", 2) if "." in name}
    operators = {name: arguments for name, arguments in listed.items() if name.endswith("Operator")}
    for name, arguments in operators.items():
        module, _, class_name = name.partition(".")
        loaded_module = importlib.import_module(f"airflow_provider_lakecdc.operators.{module}")
        operator = getattr(loaded_module, class_name)
        owners = [SourceJobOperator, operator] if issubclass(operator, SourceJobOperator) else [operator]
        given = [name for owner in owners for name in inspect.signature(owner.__init__).parameters]
        assert [n for n in given if n not in {"self", "kwargs", "dry_run", "fail_on"}] == _in_order(arguments, given)
    modules = {path.stem for path in (ROOT / "airflow_provider_lakecdc" / "operators").glob("*.py")}
    assert {name.partition(".")[0] for name in operators} == modules - {"__init__", "base", "source_job"}


def _in_order(arguments: list[str], given: list[str]) -> list[str]:
    assert set(arguments) <= set(given), f"{set(arguments) - set(given)} is not an argument"
    return [name for name in given if name in arguments]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_are_accepted_by_the_command_line(page: Path) -> None:
    lines = re.findall(
        r"^(?: {4}|```bash\n)(?:airflow lakecdc|python -m airflow_provider_lakecdc) (.*)$", page.read_text(), re.M
    )
    for line in lines:
        parser().parse_args(shlex.split(line, comments=True))
    assert lines or page.stem != "cli"


def test_every_command_is_described_with_its_options() -> None:
    (group,) = get_lakecdc_commands()
    page = (ROOT / "docs" / "reference" / "cli.md").read_text()
    common, *sections = re.split(r"^## ", page, flags=re.M)
    assert [section.split()[0] for section in sections] == [command.name for command in group.subcommands]
    for command, section in zip(group.subcommands, sections, strict=True):
        arguments = [argument for each in getattr(command, "subcommands", [command]) for argument in each.args]
        options = {flag for argument in arguments for flag in argument.flags if flag.startswith("--")}
        assert {option for option in options if f"`{option}`" not in common + section} == set()


def test_limits_of_a_micro_batch_are_settings() -> None:
    types = (FilesSource, JdbcSource, KafkaSource, MysqlSource, PostgresSource)
    sources = {next(f.default for f in dataclasses.fields(t) if f.name == "type"): t for t in types}
    ends = {quoted(name)[0]: quoted(ends) for name, ends, _ in rows("ingest-bounds.md", 3) if quoted(name)}
    assert set(ends) == set(sources)
    for name, settings in ends.items():
        assert set(settings) <= {field.name for field in dataclasses.fields(sources[name])}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[psycopg.Connection[Any]]:
    """Open a session on a real Postgres."""
    folder = reachable_folder(tmp_path_factory.mktemp("docs"), "lakecdc-docs-test-")
    with Postgres(folder / "data") as server, psycopg.connect(server.dsn, autocommit=True) as opened:
        yield opened
    shutil.rmtree(folder, ignore_errors=True)


def mapped(session: psycopg.Connection[Any], postgres_type: str) -> str | None:
    """Return the type the code maps a Postgres type to, by the ingest job's function."""
    from lakecdc.ingest.sources.postgres.types import TypeCatalog

    session.execute("DROP TABLE IF EXISTS one")
    session.execute(f"CREATE TABLE one (value {postgres_type})".encode())
    query = "SELECT atttypid, atttypmod FROM pg_attribute WHERE attrelid = 'one'::regclass AND attnum = 1"
    row = session.execute(query).fetchone()
    assert row is not None
    return TypeCatalog(session).spark_type(*row)


def test_types_are_mapped_as_documented(session: psycopg.Connection[Any]) -> None:
    listed = [
        (name, quoted(target)[0])
        for names, target in rows("ingest-postgres.md", 2)
        if quoted(target) and "`" in names
        for name in quoted(names)
    ]
    assert len(listed) > 30
    assert [(name, mapped(session, name)) for name, _ in listed] == listed


def test_documented_unmapped_types_are_unmapped(session: psycopg.Connection[Any]) -> None:
    text = (ROOT / "docs" / "guides" / "ingest-postgres.md").read_text()
    (line,) = re.findall(r"^Not mapped: (.*?), composite", text, re.MULTILINE)
    assert len(quoted(line)) > 4
    assert {name: mapped(session, name) for name in quoted(line)} == dict.fromkeys(quoted(line))


@pytest.mark.parametrize("text", blocks("json config"))
def test_configurations_match_the_schema_for_editors(text: str) -> None:
    schema = json.loads((ROOT / "docs" / "lakecdc.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.stem)
def test_pages_are_short_and_begin_with_a_sentence_and_an_example(page: Path) -> None:
    text = page.read_text()
    assert len(text.splitlines()) <= 300
    title, opening, *rest = re.split(r"\n\n+", text)
    assert title.startswith("# ") and "\n" not in title
    assert re.match(r"[A-Z\[`].*[.:]$", opening, re.DOTALL), "the page must begin with the reader's benefit"
    if page.stem not in WITHOUT_EXAMPLE:
        first = re.split(r"^## ", "\n\n".join(rest), flags=re.MULTILINE)[0]
        assert re.search(r"^(?:```| {4}\S|!\[)", first, re.MULTILINE), "an example must precede the first heading"


def test_messages_of_the_troubleshooting_page_exist_in_the_code() -> None:
    page = (ROOT / "docs" / "operations" / "troubleshooting.md").read_text()
    (section,) = re.findall(r"^## By message\n(.*?)^## ", page, re.MULTILINE | re.DOTALL)
    messages = re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE)
    texts = "\0".join(
        text
        for folder in ("spark_jobs", "airflow_provider_lakecdc")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (text := _text_of(node))
    )
    assert len(messages) > 10
    assert [message for message in messages if message not in texts] == []


def _text_of(node: ast.AST) -> str:
    """Return a text of the code with … in place of its values; empty for any other node."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text_of(part) or "…" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_have_targets(page: Path) -> None:
    assert [link for link in _LINK.findall(page.read_text()) if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_pages_show_no_path_of_a_machine(page: Path) -> None:
    assert re.findall(r"/(?:home|root|Users|work)/\S*", page.read_text()) == []


def test_the_site_has_every_page_and_no_broken_link(tmp_path: Path) -> None:
    # its configuration is strict: an unlisted page, a missing page or a missing heading is an error
    command = [sys.executable, "-m", "mkdocs", "build", "-d", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    entries = json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]
    searched = {entry["location"].partition("#")[0] for entry in entries}
    assert {page.stem for page in DOCS} - {"README"} <= {Path(location).stem for location in searched}
