"""Only approved files are removed."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from lakecdc.contract.errors import InputError
from tests.lakecdc.maintain.orphans.support import DAY, Attic, age, files, plant


def test_only_approved_files_that_are_still_orphans_are_removed(attic: Attic, tmp_path: Path) -> None:
    name = attic.create(3)
    attic.append(name, 0, 5)
    folder = attic.path(name)
    age(folder)
    live = files(folder)
    unlinked, anew, stays = sorted(plant(folder, ["data/a.parquet", "data/b.parquet", "data/c, ü %.parquet"]))
    dry = attic.run(name, dry_run=True, documents=tmp_path)
    list_of = dry.metrics["findings"]
    (document,) = tmp_path.iterdir()
    entries = [json.loads(line) for line in document.read_text().splitlines()]
    assert len(entries) == 3 and {entry["bytes"] for entry in entries} == {
        path.stat().st_size for path in (unlinked, stays)
    }
    assert dry.metrics["orphan_oldest"].startswith(time.strftime("%Y-%m-%dT", time.gmtime(unlinked.stat().st_mtime)))
    # one is rewritten, one is new, one was removed by another process
    os.utime(anew, (time.time() - 20 * DAY,) * 2)
    late = plant(folder, ["data/late.parquet"])
    unlinked.unlink()
    with pytest.raises(InputError, match="have not been approved"):
        attic.run(name, approved={"test.other": list_of})
    done = attic.run(name, approved={name: list_of})
    assert (done.metrics["files_taken"], done.metrics["files_not_approved"]) == (1, 2)
    assert files(folder) == live | {anew} | late
    # permanent deletion needs approval
    later = time.time() + 8 * DAY
    old = attic.run(name, approved={name: list_of}, now=later)
    assert (old.metrics["files_due"], old.metrics["files_deleted"], old.metrics["files_taken"]) == (1, 0, 0)
    again = attic.run(name, dry_run=True, documents=tmp_path, now=later).metrics
    assert (again["files_due"], again["orphan_files"]) == (1, 2)
    end = attic.run(name, approved={name: again["findings"]}, now=later + DAY)
    assert (end.metrics["files_deleted"], end.metrics["files_taken"]) == (1, 2)
    assert files(folder) == live


def test_a_modified_list_is_refused(attic: Attic, tmp_path: Path) -> None:
    name = attic.create(2)
    attic.append(name, 0, 5)
    orphans = plant(attic.path(name), ["data/a.parquet"])
    list_of = attic.run(name, dry_run=True, documents=tmp_path).metrics["findings"]
    (document,) = tmp_path.iterdir()
    document.write_text(document.read_text() * 2)
    with pytest.raises(InputError, match="not the approved one"):
        attic.run(name, approved={name: list_of})
    assert orphans < files(attic.path(name))
