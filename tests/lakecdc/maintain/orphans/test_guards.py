"""Tables whose files cannot be determined are left alone."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lakecdc.contract.errors import InputError, SpecError, UnsupportedError
from lakecdc.contract.expiring import RemoveOrphanFilesOptions
from tests.conftest import Lake
from tests.lakecdc.maintain.orphans.support import DAY, Attic, age, contents, plant


def prepared(attic: Attic) -> str:
    """Create a table with old files, one of them an orphan."""
    name = attic.create(2)
    attic.append(name, 0, 5)
    age(attic.path(name))
    plant(attic.path(name), ["data/left.parquet"])
    return name


def refused(attic: Attic, name: str, text: str) -> None:
    before = contents(attic.path(name))
    with pytest.raises(UnsupportedError, match=text):
        attic.run(name)
    assert contents(attic.path(name)) == before


@pytest.fixture
def another(lake: Lake, tmp_path: Path) -> Attic:
    """Return a second catalog, unknown to the first one."""
    return Attic(lake, tmp_path, f"another_{abs(hash(tmp_path))}")


def newest_metadata_file(attic: Attic, name: str) -> str:
    return str(attic.table(name).java.operations().current().metadataFileLocation())


def register(attic: Attic, name: str, metadata_file: str) -> None:
    attic.sql(f"CALL {{}}.system.register_table(table => '{name}', metadata_file => '{metadata_file}')")


def test_a_table_registered_twice_is_refused(attic: Attic) -> None:
    name = prepared(attic)
    register(attic, "test.copy", newest_metadata_file(attic, name))
    refused(attic, name, "overlaps that of test.copy")
    refused(attic, "test.copy", f"overlaps that of {name}")
    attic.sql("DROP TABLE {}.test.copy")
    assert attic.run(name).metrics["files_taken"] == 1


def test_a_table_inside_another_is_refused(attic: Attic) -> None:
    name = prepared(attic)
    inner = attic.create(2, location=f"{attic.table(name).location}/data/inner")
    refused(attic, name, f"overlaps that of {inner}")
    refused(attic, inner, f"overlaps that of {name}")
    attic.sql(f"DROP TABLE {{}}.{inner}")


def test_a_table_of_another_catalog_at_the_same_location_is_refused(attic: Attic, another: Attic) -> None:
    name = prepared(attic)
    other = another.create(2, location=attic.table(name).location)
    refused(attic, name, f"metadata of table {another.table(other).uuid}")
    assert attic.run(name, dry_run=False, action="restore").outcome == "nothing"


def test_a_table_copied_to_another_catalog_keeps_its_new_files(attic: Attic, another: Attic) -> None:
    name = prepared(attic)
    register(another, "test.copy", newest_metadata_file(attic, name))
    # a tag on a snapshot other than the new one
    another.sql("ALTER TABLE {}.test.copy CREATE TAG kept")
    another.append("test.copy", 10, 15)
    age(attic.path(name), but=".metadata.json")
    done = attic.run(name)
    assert (done.metrics["files_taken"], done.metrics["metadata_files_beside"]) == (1, 2)
    assert another.sql("SELECT count(*) FROM {}.test.copy").collect()[0][0] == 10


def test_a_table_recreated_at_its_location_is_refused(attic: Attic) -> None:
    name = prepared(attic)
    attic.run(name)
    location, folder = attic.table(name).location, attic.path(name)
    attic.sql(f"DROP TABLE {{}}.{name}")
    again = attic.create(2, location=location)
    refused(attic, again, "has metadata of table")
    for path in folder.glob("metadata/*.metadata.json"):
        if path.stat().st_mtime < time.time() - DAY:
            path.unlink()
    # files trashed for the former table are not deleted for this one, but restored
    with pytest.raises(UnsupportedError, match="trashed files of table"):
        attic.run(again, action="purge", now=time.time() + 8 * DAY)
    assert attic.run(again, action="restore").metrics["files_restored"] == 1
    attic.sql(f"DROP TABLE {{}}.{again}")


def test_own_versions_older_than_the_metadata_log_are_recognized(attic: Attic) -> None:
    name = attic.create(2, write__metadata__previous_versions_max="1")
    attic.table(name).update_properties({"write.metadata.previous-versions-max": "1"})
    for number in range(4):
        attic.append(name, number, number + 1)
    age(attic.path(name))
    report = attic.run(name)
    assert (report.outcome, report.metrics["metadata_files_beside"]) == ("nothing", 0)
    assert report.metrics["metadata_files"] == 6


def test_tables_with_files_that_others_may_own_are_refused(attic: Attic) -> None:
    name = attic.create(2, gc__enabled="false")
    refused(attic, name, "gc.enabled")


def test_a_catalog_with_an_unloadable_table_is_refused(another: Attic) -> None:
    name, broken = prepared(another), another.create(2)
    for path in another.path(broken).glob("metadata/*"):
        path.unlink()
    with pytest.raises(InputError, match=f"{broken}: Cannot load the table"):
        another.run(name)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"min_age": 2 * DAY}, "three days"),
        ({"delay": 3600.0}, "a day"),
        ({"longest_job": -1.0}, "longest_job"),
        ({"run": "x"}, "restore and purge"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, float], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        RemoveOrphanFilesOptions(**options)  # type: ignore[arg-type]


def test_files_younger_than_twice_the_longest_job_are_left_alone(attic: Attic) -> None:
    assert RemoveOrphanFilesOptions().seconds_kept() == 3 * DAY
    assert RemoveOrphanFilesOptions(longest_job=2.5 * DAY).seconds_kept() == 5 * DAY
    name = prepared(attic)
    report = attic.run(name, longest_job=20.0 * DAY)
    assert (report.outcome, report.metrics["files_too_young"]) == ("nothing", 1)
