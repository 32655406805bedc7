"""An approved list of findings is applied exactly as it was shown, or refused."""

from __future__ import annotations

import dataclasses
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from lakecdc.contract.errors import InputError, SpecError
from lakecdc.contract.expiring import RemoveOrphanFilesOptions
from lakecdc.contract.protection import Approved
from lakecdc.contract.spec import JobSpec, parse_spec
from lakecdc.maintain.findings import Findings, approved_lines, line_of


def spec(folder: Path | None) -> JobSpec:
    given: dict[str, Any] = {
        "version": 1,
        "job": "remove_orphan_files",
        "catalog": {"name": "lake"},
        "tables": ["a.b"],
    }
    return dataclasses.replace(parse_spec(given), documents=f"file://{folder}" if folder else None)


def left(folder: Path, *entries: dict[str, Any]) -> Approved:
    findings = Findings()
    for entry in entries:
        findings.add(entry)
    return Approved(**findings.write(spec(folder), "a.b/c %")["findings"])


def test_a_list_is_read_back(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [{"location": "ä b"}, {"location": "c", "bytes": 1}]
    approved = left(tmp_path, *entries)
    assert list(approved_lines(approved, "a.b")) == [line_of(entry) for entry in entries]
    assert [path.name for path in tmp_path.iterdir()] == ["findings-remove_orphan_files-a.b=2Fc=20=25.jsonl"]
    assert Findings().write(spec(tmp_path), "a.b") == {}
    lost = Findings()
    lost.add({})
    assert lost.write(spec(None), "a.b") == {}


def test_a_modified_list_is_refused_before_its_first_line(tmp_path: Path) -> None:
    approved = left(tmp_path, {"location": "a"})
    (document,) = tmp_path.iterdir()
    document.write_bytes(document.read_bytes() + line_of({"location": "b"}))
    with pytest.raises(InputError, match=r"not the approved one.*another dry run"):
        next(approved_lines(approved, "a.b"))
    document.unlink()
    with pytest.raises(InputError, match="Cannot read"):
        next(approved_lines(approved, "a.b"))


def test_memory_does_not_grow_with_a_list(tmp_path: Path) -> None:
    entry = {"location": "x" * 1000}
    tracemalloc.start()
    approved = left(tmp_path, *(entry for _ in range(100_000)))
    assert sum(1 for _ in approved_lines(approved, "a.b")) == 100_000
    assert tracemalloc.get_traced_memory()[1] < 80 * 1024**2
    tracemalloc.stop()


def test_a_table_without_approval_is_refused() -> None:
    options = RemoveOrphanFilesOptions(approved={"a.b": Approved("u", "d")})
    assert options.approval_of("a.b") == Approved("u", "d")
    with pytest.raises(InputError, match=r"a\.c: Removals from it have not been approved"):
        options.approval_of("a.c")
    assert RemoveOrphanFilesOptions().approval_of("a.c") is None
    with pytest.raises(SpecError, match="restore"):
        RemoveOrphanFilesOptions(action="restore", approved={})
