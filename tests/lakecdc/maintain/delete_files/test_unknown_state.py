"""After a commit of unknown outcome, nothing is committed twice and no file of a snapshot is deleted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from py4j.protocol import Py4JJavaError

from lakecdc.contract.errors import CommitStateUnknownError
from lakecdc.contract.report import TableReport
from lakecdc.contract.spec import parse_spec
from lakecdc.iceberg.jvm import jvm
from lakecdc.maintain.delete_files.job import rewrite_delete_files
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, create, insert, run, spark_rows
from tests.lakecdc.maintain.support import count, listed_files
from tests.versions import V2

Commit = Callable[[Callable[[], object]], object]


class Delta:
    """A ``RowDelta`` whose commit is replaced."""

    def __init__(self, java: Any, commit: Commit) -> None:
        self._java, self._commit = java, commit

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._java, name)
        if name == "commit":
            return lambda: self._commit(method)
        return lambda *args: Delta(method(*args), self._commit)


class Answers:
    """A Java table whose catalog answers like ``commit``, and which otherwise delegates to the table."""

    def __init__(self, java: Any, commit: Commit) -> None:
        self._java, self._commit = java, commit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._java, name)

    def newRowDelta(self) -> Delta:
        """Return the operation that the job commits with."""
        return Delta(self._java.newRowDelta(), self._commit)


def no_answer(lake: Lake) -> Py4JJavaError:
    """Return the exception that Iceberg throws if a catalog's answer is lost."""
    view = jvm(lake.spark)
    cause = view.java.io.IOException("the connection was lost")
    return Py4JJavaError("no answer", view.org.apache.iceberg.exceptions.CommitStateUnknownException(cause))


def run_with(lake: Lake, name: str, commit: Commit) -> TableReport:
    """Run the job on a table whose catalog answers like ``commit``."""
    table = lake.table(name)
    table.java = Answers(table.java, commit)
    return rewrite_delete_files(table, parse_spec(lake.spec("rewrite_delete_files", name, options={})))


def table_with_deletes(lake: Lake, version: int) -> str:
    name = create(lake, "id bigint, v string", version)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(20)")
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    return name


def written_files(lake: Lake, name: str) -> set[str]:
    """Return the delete files on disk that the job has written."""
    root = Path(urlsplit(lake.table(name).location).path)
    return {str(p) for p in root.rglob("deletes-*/*") if not p.name.startswith(".")}


def live_delete_files(lake: Lake, name: str) -> set[str]:
    """Return the position-delete files of the head."""
    return {urlsplit(file.file_path).path for file in listed_files(lake, name, 1)}


@V2
def test_a_commit_that_arrived_is_recognized(lake: Lake, version: int) -> None:
    name = table_with_deletes(lake, version)
    before = spark_rows(lake, name)

    def commit(really: Callable[[], object]) -> None:
        really()
        raise no_answer(lake)

    report = run_with(lake, name, commit)
    assert (report.outcome, report.metrics["commits"], report.metrics["positions"]) == ("done", 1, 5)
    assert spark_rows(lake, name) == before
    assert written_files(lake, name) == live_delete_files(lake, name) != set()
    assert list(dict(lake.table(name).java.refs())) == ["main"]
    assert run(lake, name).outcome == "nothing"


@pytest.mark.soak
def test_a_commit_that_arrived_is_recognized_behind_later_ones(lake: Lake) -> None:
    name = table_with_deletes(lake, 2)

    def commit(really: Callable[[], object]) -> None:
        really()
        insert(lake, name, "SELECT 100L AS id, 'after' AS v")
        raise no_answer(lake)

    report = run_with(lake, name, commit)
    assert (report.outcome, report.metrics["commits"]) == ("done", 1)
    assert len(spark_rows(lake, name)) == 16


@V2
def test_a_commit_that_did_not_arrive_leaves_table_and_files(lake: Lake, version: int) -> None:
    name = table_with_deletes(lake, version)
    head, before = lake.table(name).head(), spark_rows(lake, name)

    def commit(really: Callable[[], object]) -> None:
        raise no_answer(lake)

    with pytest.raises(CommitStateUnknownError, match="did not say whether the commit arrived"):
        run_with(lake, name, commit)
    assert lake.table(name).head() == head
    assert spark_rows(lake, name) == before
    # the request may still arrive
    assert len(written_files(lake, name)) == 1
    assert list(dict(lake.table(name).java.refs())) == ["main"]
    assert (run(lake, name).outcome, count(lake, name, 2)) == ("done", 0)


@pytest.mark.usefixtures("unleased")
def test_a_commit_that_arrives_late_has_its_files(lake: Lake) -> None:
    """It arrives after the job gave up and another run began: one of the two wins, and no row changes."""
    name = table_with_deletes(lake, 3)
    before, late = spark_rows(lake, name), []

    def commit(really: Callable[[], object]) -> None:
        late.append(really)
        raise no_answer(lake)

    with pytest.raises(CommitStateUnknownError):
        run_with(lake, name, commit)
    late[0]()
    assert spark_rows(lake, name) == before
    assert live_delete_files(lake, name) == written_files(lake, name)
    assert (count(lake, name, 2), run(lake, name).outcome) == (0, "nothing")
