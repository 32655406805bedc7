"""What changes when deletes are too many: the shuffled join behind a Bloom filter, and the proof in parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakecdc.contract.errors import UnsupportedError, VerificationError
from lakecdc.iceberg import file_tasks
from lakecdc.key_search import match
from lakecdc.maintain.delete_files import job as delete_files
from lakecdc.maintain.delete_files import verify
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, run
from tests.lakecdc.maintain.delete_files.test_verify import damage
from tests.lakecdc.maintain.support import count
from tests.on_demand import on_demand
from tests.versions import V3


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits so low that every path for large delete sets is taken."""
    monkeypatch.setattr(delete_files, "EXACT_DELETE_RECORDS", 10)
    monkeypatch.setattr(match, "BROADCAST_DELETE_RECORDS", 10)
    monkeypatch.setattr(verify, "most_keys", lambda spark: 40)
    monkeypatch.setattr(file_tasks, "MAX_PAIRS", 1)


def table_of_every_kind(lake: Lake, version: int) -> str:
    """Two scopes, two key sets, nulls, position deletes and keys deleted twice."""
    name = create(lake, "id bigint, v string", version, "bucket(2, id)", write__delete__mode="merge-on-read")
    insert(lake, name, "SELECT IF(id = 7, NULL, id) AS id, IF(id % 3 = 0, NULL, 'a') AS v FROM range(200)", files=2)
    lake.sql(f"DELETE FROM lake.{name} WHERE id BETWEEN 20 AND 30")
    change(lake, name, ["id"], "SELECT id FROM range(0, 60, 2)", "SELECT id, 'b' AS v FROM range(0, 20, 2)")
    change(lake, name, ["id", "v"], "SELECT id, CAST(NULL AS string) AS v FROM range(60, 120)")
    change(lake, name, ["id"], "SELECT id FROM range(0, 40, 4) UNION ALL SELECT CAST(NULL AS bigint)")
    return name


@V3
def test_every_path_for_large_sets(lake: Lake, version: int, tight: None) -> None:
    name = table_of_every_kind(lake, version)
    report = convert(lake, name)
    assert report.metrics["engine"] == "join"
    proven = report.metrics["verified"]
    assert proven["mode"] == "sample" and proven["files"] == proven["of"] > 0
    assert report.metrics["position_delete_files_to_merge"] == 0


DAMAGES: dict[str, Callable[[DataFrame], DataFrame]] = {
    "one too few": lambda rows: rows.where("NOT known AND position <> 3"),
    "one too many": lambda rows: rows.unionByName(rows.limit(1).withColumn("position", F.lit(77).cast("long"))),
}


@pytest.mark.parametrize("kind", on_demand(DAMAGES, in_ci=("one too few",)))
def test_the_proof_in_parts_finds_damage(lake: Lake, tight: None, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, "id bigint, v string", 3)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(100) ORDER BY id")
    change(lake, name, ["id"], "SELECT id FROM range(50)")
    damage(monkeypatch, DAMAGES[kind])
    with pytest.raises(VerificationError, match="has 50 deleted rows"):
        run(lake, name)
    assert count(lake, name, 2) == 1


@pytest.mark.soak
def test_a_dropped_key_column_with_too_many_deletes_is_refused(lake: Lake, tight: None) -> None:
    name = create(lake, "id bigint, old bigint, v string", 2)
    insert(lake, name, "SELECT id, id AS old, 'a' AS v FROM range(20)", files=2)
    change(lake, name, ["old"], "SELECT id AS old FROM range(5)")
    lake.sql(f"ALTER TABLE lake.{name} DROP COLUMN old")
    with pytest.raises(UnsupportedError, match="was dropped"):
        run(lake, name)


def test_too_many_pairs_for_the_exact_engine_are_refused(lake: Lake, tight: None) -> None:
    name = create(lake, "id bigint", 3)
    insert(lake, name, "SELECT id FROM range(20)", files=2)
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    with pytest.raises(UnsupportedError, match="supports 1 pairs"):
        run(lake, name, engine="exact")
    assert count(lake, name, 2) == 1


@pytest.mark.soak
def test_few_deletes_whose_pairs_were_not_kept_are_not_matched_by_the_exact_engine(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small group may come after the table's other pairs have been too many."""
    monkeypatch.setattr(file_tasks, "MAX_PAIRS", 0)
    name = create(lake, "id bigint", 3)
    insert(lake, name, "SELECT id FROM range(20)")
    change(lake, name, ["id"], "SELECT id FROM range(5)")
    assert convert(lake, name).metrics["engine"] == "native"
