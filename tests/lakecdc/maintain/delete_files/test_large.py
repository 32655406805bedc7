"""More deletes than fit into memory: keys are searched and proven in parts."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import VerificationError
from lakecdc.iceberg import file_tasks
from lakecdc.key_search import match
from lakecdc.maintain.delete_files import verify
from tests.conftest import Lake
from tests.lakecdc.maintain.delete_files.support import change, convert, create, insert, run
from tests.lakecdc.maintain.delete_files.test_verify import damage
from tests.lakecdc.maintain.support import count
from tests.on_demand import on_demand
from tests.versions import V3


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set limits so low that every path for large delete sets is used."""
    monkeypatch.setattr(match, "MOST_KEYS", 10)
    monkeypatch.setattr(file_tasks, "_OTHERS_AT_ONCE", 1)
    monkeypatch.setattr(verify, "most_keys", lambda spark: 40)
    monkeypatch.setattr(file_tasks, "MAX_PAIRS", 1)


def table_of_every_kind(lake: Lake, version: int) -> str:
    """Create two scopes, two key sets, nulls, position deletes and keys deleted twice."""
    name = create(lake, "id bigint, v string", version, "bucket(2, id)", write__delete__mode="merge-on-read")
    insert(lake, name, "SELECT IF(id = 7, NULL, id) AS id, IF(id % 3 = 0, NULL, 'a') AS v FROM range(200)", files=2)
    lake.sql(f"DELETE FROM lake.{name} WHERE id BETWEEN 20 AND 30")
    change(lake, name, ["id"], "SELECT id FROM range(0, 60, 2)", "SELECT id, 'b' AS v FROM range(0, 20, 2)")
    change(lake, name, ["id", "v"], "SELECT id, CAST(NULL AS string) AS v FROM range(60, 120)")
    change(lake, name, ["id"], "SELECT id FROM range(0, 40, 4) UNION ALL SELECT CAST(NULL AS bigint)")
    return name


@V3
@pytest.mark.parametrize("unread", [False, True])
def test_keys_are_searched_in_parts(
    lake: Lake, version: int, tight: None, unread: bool, by_iceberg: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(match, "most_keys", lambda spark: 40)
    if unread:
        monkeypatch.setattr(match, "delete_files", lambda tasks: {})
    name = table_of_every_kind(lake, version)
    report = convert(lake, name)
    assert bool(by_iceberg) is unread
    proven = report.metrics["verified"]
    assert proven["mode"] == "sample" and proven["files"] == proven["of"] > 0
    assert report.metrics["position_delete_files_to_merge"] == 0


@pytest.mark.parametrize("kind", on_demand(("one too few", "one too many"), in_ci=("one too few",)))
def test_the_proof_in_parts_detects_damage(lake: Lake, tight: None, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = create(lake, "id bigint, v string", 3)
    insert(lake, name, "SELECT id, 'a' AS v FROM range(100) ORDER BY id")
    change(lake, name, ["id"], "SELECT id FROM range(50)")
    damage(monkeypatch, kind, 77)
    with pytest.raises(VerificationError, match="has 50 deleted rows"):
        run(lake, name)
    assert count(lake, name, 2) == 1
