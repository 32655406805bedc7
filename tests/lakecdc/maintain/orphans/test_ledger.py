"""Trash documents are checked against the table's folders before they are applied."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from lakecdc.contract.errors import InputError
from lakecdc.iceberg.stored_files import StoredFile
from lakecdc.maintain.orphans.ledger import Ledger

RUN = "20260104T033000Z-0a1b2c"
RUNS = f"/_lakecdc_orphans/runs/{RUN}/000000-1.json"
TRASH = f"_lakecdc_orphans/files/{RUN}"
FILE = {"location": "file:/wh/t/data/x", "bytes": 1, "modified_ms": 2, "moved_to": f"file:/wh/t/{TRASH}/data/x"}
OBJECT = {"location": "s3://lake/t/data/x", "bytes": 1, "modified_ms": 2, "moved_to": None}


@dataclass
class Documents:
    """A table and its storage with one document."""

    location: str = "file:///wh/t"
    document: str = f"file:/wh/t{RUNS}"
    content: dict[str, Any] = field(default_factory=dict)
    name: str = "shop.orders"
    properties: dict[str, str] = field(default_factory=lambda: {"write.data.path": "/elsewhere/t"})

    def walk(self, _: str) -> Iterator[StoredFile]:
        yield StoredFile(self.document, 1, 2)

    def files(self, monkeypatch: pytest.MonkeyPatch) -> int:
        text = json.dumps({"run": RUN, "at_ms": 3, "table_uuid": "u", **self.content}).encode()
        monkeypatch.setattr("lakecdc.maintain.orphans.ledger.read_bytes", lambda *_: text)
        ledger = Ledger(self, self)  # type: ignore[arg-type]
        return sum(len(batch.files) for batch in ledger.batches())


def test_documents_of_the_tables_folders_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = {**FILE, "location": "file:/elsewhere/t/y", "moved_to": f"file:/elsewhere/t/{TRASH}/y"}
    assert Documents(content={"files": [FILE, beside]}).files(monkeypatch) == 2
    objects = Documents("s3://lake/t", f"s3a://lake/t{RUNS}", {"files": [OBJECT]})
    assert objects.files(monkeypatch) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"moved_to": "file:/wh/other/data/x"},
        {"moved_to": f"file:/wh/t/{TRASH}/../../../../other/data/x"},
        {"moved_to": "file:/wh/t/_lakecdc_orphans/files/another-run/data/x"},
        {"moved_to": f"file:/wh/t/{TRASH}/data/y"},
        {"moved_to": f"hdfs://nn/wh/t/{TRASH}/data/x"},
        {"moved_to": None},
        {"location": "file:/wh/other/data/x", "moved_to": f"file:/wh/other/{TRASH}/data/x"},
        {"location": "file:/wh/t/../other/x", "moved_to": f"file:/wh/t/{TRASH}/../other/x"},
        {"location": f"file:/wh/t{RUNS}", "moved_to": f"file:/wh/t/{TRASH}{RUNS}"},
        {"location": "s3://lake/wh/t/data/x", "moved_to": None},
        {"location": 1},
        {"further": 1},
    ],
)
def test_documents_with_foreign_files_are_refused(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"000000-1\.json is not a list of files that a run trashed"):
        Documents(content={"files": [FILE, FILE | change]}).files(monkeypatch)


@pytest.mark.parametrize("moved_to", [f"s3://lake/t/{TRASH}/data/x", "s3://lake/other/x", ""])
def test_objects_outside_the_location_are_refused(monkeypatch: pytest.MonkeyPatch, moved_to: str) -> None:
    content = {"files": [OBJECT | {"moved_to": moved_to}]}
    with pytest.raises(InputError, match="is not the place"):
        Documents("s3://lake/t", f"s3://lake/t{RUNS}", content).files(monkeypatch)


@pytest.mark.parametrize("content", [{"run": ".."}, {"run": "another"}, {"at_ms": "soon"}, {"files": None}])
def test_invalid_documents_are_refused(monkeypatch: pytest.MonkeyPatch, content: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="is not a list of files"):
        Documents(content={"files": [FILE], **content}).files(monkeypatch)


def test_runs_outside_their_folder_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    document = "file:/wh/t/_lakecdc_orphans/runs/../000000-1.json"
    with pytest.raises(InputError, match="its run is"):
        Documents(document=document, content={"files": [FILE], "run": ".."}).files(monkeypatch)
