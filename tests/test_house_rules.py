"""Rules of the house that neither ruff nor import-linter can state."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PROVIDER = ROOT / "airflow_provider_lakecdc"
JOBS = ROOT / "spark_jobs"
LIBRARY = JOBS / "lakecdc"
FOLDERS = ("airflow_provider_lakecdc", "spark_jobs", "local_services", "demo", "dags", "benchmarks", "tests", ".ci")
DOCUMENTED = ("airflow_provider_lakecdc", "spark_jobs", "local_services", "demo")
#: maximum lines of a module, and the exceptions; this list only shrinks
LONGEST = 400
LONGER = {
    "airflow_provider_lakecdc/operators/base.py": 432,
    "spark_jobs/lakecdc/ingest/sources/mysql/decoder.py": 415,
    "spark_jobs/lakecdc/model/columns.py": 449,
    "tests/airflow_provider_lakecdc/templates/test_dags.py": 494,
    "tests/lakecdc/ingest/sources/mysql/test_rounds.py": 409,
    "tests/lakecdc/maintain/test_all_jobs.py": 489,
}
DOCUMENTED_SHARE = 0.75
#: participles and verbs that do not name what a value is
VAGUE_NAMES = {
    *("asked", "found", "gone", "held", "kept", "made", "meant"),
    *("say", "says", "taken", "tell", "tells", "told", "wanted"),
}
VAGUE_PARTS = {"nobody", "say", "says", "tell", "tells", "told", "whoever"}
#: methods that Python's protocol of files prescribes
PROTOCOL_METHODS = {"tell"}
GATEWAY_NAMES = {"_jvm", "_jsparkSession", "_jsc", "_jdf"}
HEAVY = {"pyspark", "py4j", "pyarrow", "pandas", "numpy", "duckdb", "pyroaring"}


def modules(*folders: Path) -> list[Path]:
    """Return all Python files below the folders that exist."""
    return sorted(path for folder in folders if folder.is_dir() for path in folder.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    """Return the syntax tree of a file."""
    return ast.parse(path.read_text(), str(path))


def where(path: Path, node: ast.AST) -> str:
    """Return file and line for a message."""
    return f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"


def imports(tree: ast.AST, *, module_level: bool = False) -> Iterator[tuple[ast.AST, str]]:
    """Yield the absolute imports of a tree with their statement.

    :param module_level: only those executed when the module is imported
    """
    for node in executed_at_import(tree) if module_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node, node.module or ""


def executed_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes that importing a module executes: no function bodies, no ``if TYPE_CHECKING``."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        yield node
        yield from executed_at_import(node)


def touches_gateway(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield accesses to the JVM: py4j, or PySpark's private handles, also by ``getattr``."""
    for node in ast.walk(tree):
        by_attribute = isinstance(node, ast.Attribute) and node.attr in GATEWAY_NAMES
        by_text = isinstance(node, ast.Constant) and node.value in GATEWAY_NAMES
        if by_attribute or by_text:
            yield node
    yield from (node for node, name in imports(tree) if name.split(".")[0] == "py4j")


def bindings(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the names that a tree binds: functions, classes, parameters, locals, attributes and fields."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=str(name)) | ast.AsyncFunctionDef(name=str(name)) | ast.ClassDef(name=str(name)):
                yield node, name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield node, name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
                yield node, name


def is_vague(name: str) -> bool:
    """Return whether a name does not describe the value."""
    words = name.lower().strip("_")
    return words in VAGUE_NAMES or not VAGUE_PARTS.isdisjoint(words.split("_"))


def public_definitions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Yield the public functions and classes of a module and the public methods of its public classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(ast.Module(node.body, []))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import pyspark", ["pyspark"]),
        ("try:\n    import pyspark\nexcept ImportError:\n    pass", ["pyspark"]),
        ("class A:\n    from pyspark.sql import Row", ["pyspark.sql"]),
        ("def f():\n    import pyspark", []),
        ("if TYPE_CHECKING:\n    import pyspark", []),
        ("from . import pyspark", []),
    ],
)
def test_module_level_imports_are_distinguished_from_lazy_ones(source: str, expected: list[str]) -> None:
    assert [name for _, name in imports(ast.parse(source), module_level=True)] == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("spark._jvm.java.lang.System", True),
        ("getattr(spark, '_jsparkSession')", True),
        ("from py4j.java_gateway import is_instance_of", True),
        ("'''Never touches _jvm.'''", False),
    ],
)
def test_the_gateway_is_recognised(source: str, expected: bool) -> None:
    assert bool(list(touches_gateway(ast.parse(source)))) is expected


def test_only_the_iceberg_room_touches_the_jvm() -> None:
    room = LIBRARY / "iceberg"
    outside = [path for path in modules(PROVIDER, JOBS, ROOT / "dags") if not path.is_relative_to(room)]
    assert [where(path, node) for path in outside for node in touches_gateway(parsed(path))] == []


def test_types_and_frames_become_sql_in_one_place() -> None:
    # Spark's text of a type does not quote the names of its members, and a named view may already exist
    unsafe = {"simpleString", "createOrReplaceTempView", "createTempView"}
    violations = [
        where(path, node)
        for path in modules(JOBS)
        if path != LIBRARY / "sql.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr in unsafe
    ]
    assert violations == []


def test_the_provider_keeps_its_modules_in_packages() -> None:
    top = {path.stem for path in PROVIDER.glob("*.py")}
    assert top == {"__init__", "__main__", "exceptions", "get_provider_info", "settings"}


def test_library_root_is_empty() -> None:
    # A zip of the library on a cluster is imported by every task, which pays for each line here.
    assert (LIBRARY / "__init__.py").read_bytes() == b""


def test_provider_imports_nothing_heavy_at_module_level() -> None:
    violations = [
        where(path, node)
        for path in modules(PROVIDER, ROOT / "dags")
        for node, name in imports(parsed(path), module_level=True)
        if name.split(".")[0] in HEAVY
    ]
    assert violations == []


def test_provider_and_dags_import_only_the_pure_rooms() -> None:
    pure = ("lakecdc.contract", "lakecdc.metadata", "lakecdc.object_store")
    violations = [
        f"{where(path, node)} {name}"
        for path in modules(PROVIDER, ROOT / "dags")
        for node, name in imports(parsed(path))
        if name.split(".")[0] == "lakecdc" and not name.startswith(pure)
    ]
    assert violations == []


def test_jobs_never_import_airflow() -> None:
    violations = [
        f"{where(path, node)} {name}"
        for path in modules(JOBS)
        for node, name in imports(parsed(path))
        if name.split(".")[0] in {"airflow", "airflow_provider_lakecdc"}
    ]
    assert violations == []


def test_pure_rooms_need_only_the_standard_library() -> None:
    allowed = {*sys.stdlib_module_names, "lakecdc"}
    violations = [
        f"{where(path, node)} {name}"
        for path in modules(LIBRARY / "contract", LIBRARY / "metadata")
        for node, name in imports(parsed(path))
        if name.split(".")[0] not in allowed
        or (name.split(".")[0] == "lakecdc" and not name.startswith(("lakecdc.contract", "lakecdc.metadata")))
    ]
    assert violations == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(told, *, _kept_): ...", ["told", "_kept_"]),
        ("class Held:\n    wanted: int", ["Held", "wanted"]),
        ("async def test_what_the_page_says(): ...", ["test_what_the_page_says"]),
        ("self.taken, FOUND = 1, [made for made in x]", ["taken", "FOUND", "made"]),
        ("try: ...\nexcept E as told: ...\nimport a as says", ["told", "says"]),
        ("found(gone.asked); x['kept']; f(held=1)", []),
        ("rows_found = foretold = unkept = telling = 1", []),
    ],
)
def test_vague_names_are_recognised(source: str, expected: list[str]) -> None:
    assert sorted(name for _, name in bindings(ast.parse(source)) if is_vague(name)) == sorted(expected)


def test_names_describe_the_value() -> None:
    violations = [
        f"{where(path, node)} {name}"
        for path in modules(*(ROOT / name for name in (*FOLDERS, "docker")))
        for node, name in bindings(parsed(path))
        if is_vague(name) and not (isinstance(node, ast.FunctionDef) and name in PROTOCOL_METHODS)
    ]
    assert violations == [], "name it after its content, such as rows, errors or expected"


def test_no_module_is_too_long() -> None:
    lines_by_path = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in modules(*(ROOT / name for name in FOLDERS))
    }
    longer = {name: count for name, count in lines_by_path.items() if count > LONGEST}
    assert {name: count for name, count in longer.items() if count > LONGER.get(name, 0)} == {}
    assert {*LONGER} == {*longer}, "remove modules that are short enough"


def test_most_public_things_are_documented() -> None:
    undocumented = []
    total = 0
    for path in modules(*(ROOT / name for name in DOCUMENTED)):
        for node in public_definitions(parsed(path)):
            total += 1
            if ast.get_docstring(node) is None:
                undocumented.append(f"{where(path, node)} {node.name}")
    assert len(undocumented) <= (1 - DOCUMENTED_SHARE) * total, "\n".join(undocumented)
