"""Cold data files that are left alone, by time of their partition, by tag and by storage class."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.rewriting import CompactDataFilesOptions, SortDataFilesOptions
from lakecdc.maintain.selection import Unit, compaction_units, sort_units
from lakecdc.metadata import cold
from lakecdc.metadata.cold import ColdRules, TimeField, cold_counts, cold_remark, partition_end
from lakecdc.metadata.file_facts import Cold, FileFacts, Partitions

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("transform", "kind", "value", "end"),
    [
        ("year", "date", 56, "2027-01-01"),
        ("month", "date", 11, "1971-01-01"),
        ("month", "date", -1, "1970-01-01"),
        ("day", "timestamptz", 0, "1970-01-02"),
        ("day", "timestamptz", "2026-02-28", "2026-03-01"),
        ("hour", "timestamp", 23, "1970-01-02"),
        ("identity", "date", "2026-02-28", "2026-03-01"),
        ("identity", "date", -1, "1970-01-01"),
        ("identity", "timestamp", "2026-02-28T01:02:03.000", "2026-02-28T01:02:03"),
        ("identity", "timestamptz", "2026-02-28T01:02:03.000Z", "2026-02-28T01:02:03"),
        ("identity", "timestamptz", 3_600_000_000, "1970-01-01T01:00:00"),
        ("identity", "timestamptz_ns", 3_600_000_000_000, "1970-01-01T01:00:00"),
        ("day", "date", None, None),
        ("year", "date", 100_000, None),
        ("day", "date", "+12026-01-01", None),
        ("identity", "string", "2026-02-28", None),
        ("bucket[4]", "date", 3, None),
        ("truncate[4]", "string", "2026", None),
        ("void", "date", 3, None),
    ],
)
def test_the_end_of_a_partition_follows_its_values(transform: str, kind: str, value: Any, end: str | None) -> None:
    fields = {3: [TimeField("f", transform, kind)]}
    assert partition_end(fields, (3, json.dumps({"f": value}))) == (at(end) if end else None)


def test_the_latest_of_several_times_counts_and_unbounded_is_latest() -> None:
    fields = {0: [TimeField("a", "day", "date"), TimeField("b", "month", "date"), TimeField("c", "bucket[2]", "long")]}
    assert partition_end(fields, (0, '{"a": 0, "b": 1, "c": 0}')) == at("1970-03-01")
    # Spark omits nulls in JSON
    assert partition_end(fields, (0, '{"a": 0, "c": 0}')) is None
    assert partition_end(fields, (1, "{}")) is None


def file(name: str, day: str = "{}", sequence: int = 1, low: int = 0, high: int = 9) -> FileFacts:
    return FileFacts(name, 0, day, 10, 10, 10, lower=low, upper=high, sequence=sequence)


def rules(
    options: CompactDataFilesOptions | SortDataFilesOptions,
    classes: Mapping[str, str] | None = None,
    tagged: Collection[str] = (),
    requests: list[str] | None = None,
) -> ColdRules:
    fields = {0: [TimeField("d", "day", "date")]}

    def look_up(locations: Collection[str]) -> dict[str, str]:
        if requests is not None:
            requests.extend(locations)
        return {each: classes[each] for each in locations if each in (classes or {})}  # type: ignore[index]

    return ColdRules(options, lambda scope: partition_end(fields, scope), tagged, look_up, NOW)


def compacted(partitions: Partitions, rules: ColdRules) -> set[str]:
    """Return the files that compaction chooses."""
    assert isinstance(rules.options, CompactDataFilesOptions)
    options = rules.options

    def choose(marked: Partitions) -> list[Unit]:
        return compaction_units(marked, options, 1000)[0]

    units = rules.choose(partitions, choose, lambda units: (file for unit in units for file in unit.files))
    return {file.location for unit in units for file in unit.files}


def test_old_partitions_are_left_alone_and_counted() -> None:
    days = {day: json.dumps({"d": day}) for day in ("2026-11-09", "2026-11-10", "2026-11-20")}
    partitions = {(0, text): [file(f"{day}/{n}", text) for n in range(5)] for day, text in days.items()}
    decided = rules(CompactDataFilesOptions(cold_after_days=10))
    # the tenth ended at midnight of the eleventh, 9.5 days ago
    assert {name[:10] for name in compacted(partitions, decided)} == {"2026-11-10", "2026-11-20"}
    counts = cold_counts(decided.mark(partitions))
    assert counts == {"cold_files_left": 5, "cold_bytes_left": 50, "cold_files_by_age": 5}
    assert cold_remark(counts) == "5 cold files of 50 bytes are left alone: 5 by their partition's age"
    everything = rules(CompactDataFilesOptions())
    assert len(compacted(partitions, everything)) == 15 and cold_remark(cold_counts(partitions)) is None


def test_tagged_files_are_not_chosen_and_new_files_do_not_overlap_them() -> None:
    files = [file(f"f{n}", low=10 * n, high=10 * n + 9) for n in range(12)]
    decided = rules(CompactDataFilesOptions(cold_tag="cold"), tagged={"f6"})
    marked = decided.mark({(0, "{}"): files})
    units, counts = compaction_units(marked, CompactDataFilesOptions(), 1000)
    assert counts["small_files"] == 11
    assert [{f.location for f in unit.files} for unit in units] == [
        {f"f{n}" for n in range(6)},
        {f"f{n}" for n in range(7, 12)},
    ]


def test_a_cold_file_that_spans_the_gaps_of_many_is_not_rewritten() -> None:
    between = [file(f"b{n}", low=10 * n + 5, high=10 * n + 5) for n in range(7)]
    large = [replace(each, bytes=900, data_bytes=900) for each in between]
    small = [file(f"f{n}", low=10 * n, high=10 * n + 1) for n in range(8)]
    wide = replace(file("wide", low=0, high=79), bytes=900, data_bytes=900)
    for tagged in (set(), {"wide"}):
        decided = rules(CompactDataFilesOptions(cold_tag="cold"), tagged=tagged)
        assert ("wide" in compacted({(0, "{}"): [*small, *large, wide]}, decided)) is (not tagged)


def test_sorting_ignores_cold_files_and_their_overlap() -> None:
    files = [file(f"f{n}") for n in range(4)]
    decided = rules(SortDataFilesOptions(cold_tag="cold"), tagged={"f0", "f1"})
    units, counts = sort_units(decided.mark({(0, "{}"): files}), SortDataFilesOptions(), 1000)
    assert [{f.location for f in unit.files} for unit in units] == [{"f2", "f3"}]
    assert counts["overlap_depth_before"] == 2
    alone = rules(SortDataFilesOptions(cold_tag="cold"), tagged={"f0", "f1", "f2"})
    units, counts = sort_units(alone.mark({(0, "{}"): files}), SortDataFilesOptions(), 1000)
    assert units == [] and counts["overlap_depth_before"] == 1


def test_only_files_to_rewrite_are_looked_up_and_each_once() -> None:
    idle, busy = json.dumps({"d": "2026-11-19"}), json.dumps({"d": "2026-11-20"})
    partitions = {(0, idle): [file("idle", idle)], (0, busy): [file(f"f{n}", busy) for n in range(8)]}
    requests: list[str] = []
    options = CompactDataFilesOptions(cold_storage_classes=("GLACIER",))
    decided = rules(options, {"f1": "GLACIER", "f2": "STANDARD", "f3": "STANDARD_IA"}, requests=requests)
    assert compacted(partitions, decided) == {"f0", "f2", "f3", "f4", "f5", "f6", "f7"}
    assert sorted(requests) == [f"f{n}" for n in range(8)]
    assert compacted(partitions, decided) and len(requests) == 8
    assert cold_counts(decided.mark(partitions))["cold_files_by_storage_class"] == 1


def test_look_ups_are_limited_newest_files_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold, "MOST_LOOK_UPS", 5)
    partitions = {(0, "{}"): [file(f"f{n}", sequence=n) for n in range(8)]}
    requests: list[str] = []
    decided = rules(CompactDataFilesOptions(cold_storage_classes=("GLACIER",)), {}, requests=requests)
    assert compacted(partitions, decided) == {"f3", "f4", "f5", "f6", "f7"}
    assert requests == ["f7", "f6", "f5", "f4", "f3"]
    marked = decided.mark(partitions)
    assert {f.location for f in marked[0, "{}"] if f.cold is Cold.NOT_LOOKED_UP} == {"f0", "f1", "f2"}


def test_a_negative_age_is_refused() -> None:
    with pytest.raises(SpecError, match="cold_after_days is -1"):
        CompactDataFilesOptions(cold_after_days=-1)
