"""Search of folders in bounded memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from lakecdc.contract.errors import ConflictError
from lakecdc.iceberg.stored_files import StoredFile, VanishedError
from lakecdc.maintain.orphans.search import Question, SearchResult, apart, search
from tests.on_demand import on_demand

MEMORY = """
import resource, sys
from lakecdc.maintain.orphans.reachable import HashSet, name_hash
from tests.lakecdc.maintain.orphans.test_search import searched, location

count = int(sys.argv[1])
names = HashSet(name_hash(location(number)) for number in range(0, count, 2))
assert len(names) == count // 2
search = searched(lambda each: name_hash(each) in names, count)
assert search.counts["files_reachable"] == search.counts["orphan_files"] == count // 2, search.counts
assert sum(len(batch) for batch in search.batches(1000)) == count // 2
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def location(number: int) -> str:
    return f"s3://lake/shop/orders/data/id_bucket={number % 512}/{number:08d}-7f3c-4d0b-9a55-0123456789ab.parquet"


class Listing:
    """A storage with a number of files, where some listings fail midway."""

    def __init__(self, count: int, breaks: int = 0) -> None:
        self.count, self.breaks = count, breaks

    def walk(self, folder: str) -> Iterator[StoredFile]:
        """Yield the files by number."""
        for number in range(self.count):
            if self.breaks and number == self.count // 2:
                self.breaks -= 1
                raise VanishedError("a folder is gone")
            yield StoredFile(location(number), 10, 0)


def question(explained: object) -> Question:
    return Question("t", ["s3://lake/shop/orders"], explained, 1, set(), lambda _: False)  # type: ignore[arg-type]


def searched(explained: object, count: int, breaks: int = 0) -> SearchResult:
    return search(question(explained), Listing(count, breaks))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", on_demand((20_000, 10_000_000), in_ci=(20_000,)))
def test_ten_million_names_fit_into_a_gigabyte(count: int) -> None:
    done = subprocess.run([sys.executable, "-c", MEMORY, str(count)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 1024**3


def test_sources_of_the_largest_orphans_are_reported() -> None:
    folders = [f"data/lakecdc-ingest-202601{day:02}T000000Z-app{day}" for day in range(1, 25)]
    names = [f"{folder}/load-1/{n}.parquet" for day, folder in enumerate(folders, 1) for n in range(day)]
    search = SearchResult()
    for name in [*names, "data/x"]:
        search.add_orphan(StoredFile(f"s3://lake/shop/orders/{name}", 10, 0), name)
    metrics = search.metrics()
    assert metrics["orphan_files"] == len(names) + 1
    most = {"job": "ingest", "started": "2026-01-24T00:00:00+00:00", "application": "app24", "files": 24, "bytes": 240}
    assert (metrics["orphan_writers"][0], len(metrics["orphan_writers"])) == (most, 20)


def test_an_interrupted_listing_is_restarted() -> None:
    search = searched(lambda name: "00000003" not in name, 10, breaks=2)
    assert search.counts["files_listed"] == 10
    assert [file.location for batch in search.batches(3) for file in batch] == [location(3)] == search.examples
    with pytest.raises(ConflictError, match="vanish faster"):
        searched(lambda _: True, 10, breaks=9)


def test_nested_folders_are_searched_once() -> None:
    assert apart(["s3://l/t/data", "s3a://l/t/", "s3://l/t2"]) == ["s3a://l/t", "s3://l/t2"]
