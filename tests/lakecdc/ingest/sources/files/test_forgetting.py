"""Files removed from the source are forgotten on request, and no others; files needed by a snapshot stay."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from lakecdc.ingest.sources import file_memory
from lakecdc.ingest.sources.file_memory import Chapter, Memory, Shown, extended, fingerprint, replaced_chapters
from lakecdc.maintain.side_tables import clean_side_tables
from lakecdc.metadata.names import FILES_SUFFIX
from lakecdc.metadata.positions import Position
from tests.lakecdc.ingest.killing import act_at
from tests.lakecdc.ingest.sources.files.conftest import Fed
from tests.lakecdc.maintain.support import run as run_job


@pytest.fixture(autouse=True)
def few_in_a_position(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_memory, "_MOST", 2)


def prints(names: Iterable[str]) -> frozenset[str]:
    return frozenset(map(fingerprint, names))


class Reader:
    """A table that reads files, and the chapters beside it."""

    def __init__(self) -> None:
        self.memory, self.chapters = Memory(), dict[str, Chapter]()

    def read(self, new: str, there: str, paths: str = "p", forget: int = 2) -> int:
        """Read files of one letter each; return the number of forgotten ones."""
        before = self.memory
        self.memory, written = extended(before, new, Shown(paths, prints(there + new), forget))
        for chapter in written:
            assert chapter.files and (chapter.previous in self.chapters or not chapter.previous)
            self.chapters[chapter.name] = chapter
        # a position lists the same
        listed = frozenset[str]().union(*(self.chapters[n].files for n in self.chain()))
        assert listed | self.memory.recent == self.memory.all
        assert self.memory.count == before.count + len(new)
        return len(before.all) + len(new) - len(self.memory.all)

    def chain(self) -> list[str]:
        return file_memory.chain(self.chapters, self.memory.chapter)

    def knows(self, files: str) -> bool:
        return self.memory.all == prints(files)

    def replaced(self, *stood_on: Memory) -> set[str]:
        return replaced(self.chapters, self.memory.chapter, [memory.chapter for memory in stood_on])


def replaced(chapters: dict[str, Chapter], current: str, stood_on: Iterable[str]) -> set[str]:
    at, *before = (Position("files", "", {"chapter": name}) for name in (current, *stood_on))
    return replaced_chapters(chapters, at, before)


def test_removed_files_beyond_the_limit_are_forgotten_with_the_next_new_file() -> None:
    reader = Reader()
    assert reader.read("abc", "") == 0
    assert reader.read("d", "c") == 0, "two removed files may be remembered"
    before = reader.memory
    assert reader.read("", "") == 0 and reader.memory == before, "no new file: the disk may not be mounted"
    assert reader.read("e", "d") == 3 and reader.knows("de")
    assert reader.memory.offsets()["chapter"] and reader.memory.count == 5
    assert reader.replaced(before) == set(), "a snapshot needs it"
    assert reader.replaced() == set(file_memory.chain(reader.chapters, before.chapter))
    # a run repeated after a kill writes the same chapters
    assert extended(before, "e", Shown("p", prints("de"), 2))[1][0].name in reader.chapters
    assert reader.read("a", "de") == 0 and reader.knows("ade"), "a forgotten name is a new file"


def test_without_the_option_nothing_is_forgotten() -> None:
    reader = Reader()
    reader.read("abcdefgh", "", forget=0)
    assert reader.read("i", "", forget=0) == 0 and reader.knows("abcdefghi")
    assert reader.replaced() == set()


def test_few_files_are_recorded_in_the_position_only() -> None:
    reader = Reader()
    reader.read("ab", "", forget=1)
    assert reader.read("c", "", forget=1) == 2 and reader.knows("c") and not reader.chapters


def test_files_read_under_other_paths_are_never_forgotten() -> None:
    reader = Reader()
    reader.read("abcd", "")
    assert reader.read("e", "", paths="q") == 0, "q does not list the files read under p"
    assert reader.read("fgh", "", paths="q") == 0
    assert reader.read("i", "h", paths="q") == 3 and reader.knows("abcdhi")
    assert reader.read("j", "i", paths="p") == 0, "nor does p, later"
    assert reader.read("klm", "", paths="p") == 0
    assert reader.read("n", "", paths="p") == 4 and reader.knows("abcdhin")
    assert reader.memory.lasting == prints("abcdhi")
    # every replaced chain's lasting files are on the present chain too
    stale = reader.replaced()
    assert stale and not stale & set(reader.chain())


def test_files_of_several_paths_or_an_earlier_version_are_not_forgotten() -> None:
    reader = Reader()
    reader.read("abc", "", forget=0)
    reader.read("d", "", paths="q", forget=0)
    assert "paths" not in reader.memory.offsets()
    assert reader.read("e", "", paths="q") == 0 and reader.memory.lasting == prints("abcd")
    reader.read("fg", "", paths="q")
    assert reader.read("h", "", paths="q") == 3 and reader.knows("abcdh")


def test_only_chapters_that_no_run_can_follow_are_replaced() -> None:
    chain: dict[str, Chapter] = {
        **{"o1": Chapter(""), "o2": Chapter("o1"), "r": Chapter("", instead="o2"), "n": Chapter("r")},
        # from runs that began on the old chain and were interrupted
        **{"x": Chapter("o2"), "y": Chapter("", instead="o1"), "z": Chapter("y")},
        # from runs that began on the present chain and may be about to commit
        **{"next": Chapter("n"), "anew": Chapter("", instead="n"), "first": Chapter("")},
    }
    old = {"o1", "o2", "x", "y", "z"}
    assert replaced(chain, "n", []) == old
    assert replaced(chain, "n", ["o1"]) == {"o2", "x"}, "a rolled-back run may continue from o1 and replace it"
    assert replaced(chain, "o2", ["n"]) == set(), "the table was rolled back"
    assert replaced(chain, "", ["n"]) == set()
    # replaced twice before any cleanup
    assert replaced(chain, "anew", []) == old | {"r", "n", "next"}
    with pytest.raises(KeyError):
        replaced(chain, "n", ["of a run that has just written"])


def test_files_are_forgotten_with_a_commit_that_can_be_rolled_back(fed: Fed, monkeypatch: pytest.MonkeyPatch) -> None:
    fed.source |= {"forget_gone_files": 2}
    fed.target["history_table"] = f"{fed.name}_history"
    files = fed.name + FILES_SUFFIX

    def remembered() -> list[tuple[Any, ...]]:
        return fed.rows("count(DISTINCT chapter), count(*)", files)

    def history() -> list[tuple[Any, ...]]:
        return fed.rows("count(*), count(DISTINCT id)", fed.target["history_table"])

    for number in range(4):
        fed.write(f"{number}.csv", "id", str(number))
    assert "files_forgotten" not in fed.run().metrics and remembered() == [(1, 4)]
    first = fed.lake.table(fed.name).head()
    for number in range(3):
        (fed.folder / f"{number}.csv").unlink()
    fed.write("4.csv", "id", "4")
    act_at(monkeypatch, "after_side_tables=raise")
    assert "after_side_tables" in str(fed.run(outcome="failed").reason)
    act_at(monkeypatch, "")
    assert history() == [(5, 5)] and remembered() == [(2, 6)]
    # the source now has even fewer files; the history table's batch is repeated unchanged
    (fed.folder / "3.csv").unlink()
    report = fed.run()
    assert (report.metrics["files_read"], report.metrics["files_forgotten"]) == (1, 3)
    assert history() == [(5, 5)] and remembered() == [(2, 6)] and len(fed.rows("id")) == 5

    def clean() -> tuple[str, int]:
        report = run_job(fed.lake, clean_side_tables, fed.name, quarantine_table=fed.quarantine)
        return report.outcome, report.metrics["files_read_removed"]

    assert first and clean() == ("nothing", 0), "the table can be rolled back"
    fed.lake.sql(f"CALL lake.system.rollback_to_snapshot('{fed.name}', {first.id})")
    assert clean() == ("nothing", 0)
    assert fed.run().metrics["files_read"] == 1 and len(fed.rows("id")) == 5
    fed.lake.sql(f"CALL lake.system.expire_snapshots('{fed.name}', TIMESTAMP '2100-01-01 00:00:00', 1)")
    assert clean() == ("done", 4) and clean() == ("nothing", 0)
    assert {row[0] for row in fed.rows("file", files)} == {fingerprint(f"file://{fed.folder}/{n}.csv") for n in (3, 4)}
    fed.write("5.csv", "id", "5")
    fed.write("0.csv", "id", "0")
    assert fed.run().metrics["files_read"] == 2, "a forgotten name is a new file"
    assert len(fed.rows("id")) == 6 and fed.run(outcome="nothing").metrics["files_read"] == 0
