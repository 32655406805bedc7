"""Engines that can read a table."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.metadata.readers import (
    READERS,
    Deletes,
    Form,
    Reader,
    ReaderName,
    can_read,
    choose_form,
    explain_form,
    find_misfit,
    gained_by_rewrite,
    readable_by,
    refused_by,
)

ALL = {reader.name for reader in READERS}


def test_a_table_without_deletes_is_readable_by_all_engines_of_its_version() -> None:
    assert set(readable_by(2, 0, 0)) == ALL
    assert refused_by(2, 0, 0) == []
    assert set(readable_by(3, 0, 0)) | set(refused_by(3, 0, 0)) == ALL
    assert "Amazon Athena" in refused_by(3, 0, 0)
    assert readable_by(4, 0, 0) == ["Apache Spark with Iceberg 1.12"]


def test_equality_deletes_exclude_engines_until_they_are_rewritten() -> None:
    assert {"Snowflake", "PyIceberg 0.12", "Databricks Runtime 18"} <= set(refused_by(2, 9, 0))
    assert gained_by_rewrite(2, 9, 0) == ["PyIceberg 0.12", "Snowflake"]
    # Databricks reads deletion vectors
    assert gained_by_rewrite(3, 9, 0) == ["Databricks Runtime 18", "PyIceberg 0.12", "Snowflake"]
    assert gained_by_rewrite(2, 0, 9) == []


def test_unknown_support_is_neither_read_nor_refused() -> None:
    (redshift,) = [reader for reader in READERS if reader.name == "Amazon Redshift"]
    assert can_read(redshift, 2, 1, 0) is None
    assert redshift.name not in readable_by(2, 1, 0) + refused_by(2, 1, 0) + gained_by_rewrite(2, 1, 0)
    assert can_read(redshift, 2, 0, 1) is True


def test_every_fact_has_a_source() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "readers.md").read_text()
    sources = {line.split(" | ")[0].removeprefix("| ") for line in page.splitlines() if "<https://" in line}
    assert all(reader.name in sources or reader.tried for reader in READERS)
    assert sorted(ALL) == sorted(reader.name for reader in READERS)


def test_short_names_equal_those_of_the_settings() -> None:
    shorts = [reader.short for reader in READERS]
    assert sorted(shorts) == sorted(set(shorts)) == sorted(get_args(ReaderName))


def reads(reader: Reader, version: int, equality: int, position: int) -> bool:
    """Return whether an engine is known to read a state of a table, from its facts alone."""
    applies = reader.position_deletes if version == 2 else reader.deletion_vectors
    known = [reader.equality_deletes] * equality + [applies] * position
    return version <= reader.max_format_version and all(fact is True for fact in known)


KINDS: list[tuple[Deletes, ...]] = [("equality", "resolved"), ("equality",), ("resolved",), ("none",)]


@pytest.mark.parametrize("kinds", KINDS)
@pytest.mark.parametrize("versions", [(2, 3), (2,), (3,)])
def test_every_reader_reads_the_form_and_no_cheaper_form_suffices(
    kinds: tuple[Deletes, ...], versions: tuple[int, ...]
) -> None:
    """Check all 4,096 sets of readers with each restriction of a target."""
    forms = [Form(version, kind) for version in versions for kind in kinds]
    # deletes of each form: equality deletes later become position deletes
    may_hold = {"equality": [(0, 0), (1, 0), (0, 1), (1, 1)], "resolved": [(0, 0), (0, 1)], "none": [(0, 0)]}

    def suits(names: tuple[str, ...], form: Form) -> bool:
        readers = [reader for reader in READERS if reader.short in names]
        return all(reads(reader, form.format_version, *state) for reader in readers for state in may_hold[form.deletes])

    refused = 0
    for size in range(len(READERS) + 1):
        for names in combinations([reader.short for reader in READERS], size):
            first = next((form for form in forms if suits(names, form)), None)
            if first is not None:
                assert choose_form(names, versions, kinds) == first
                continue
            refused += 1
            with pytest.raises(SpecError) as error:
                choose_form(names, versions, kinds)
            named = [reader.name for reader in READERS if reader.name in str(error.value)]
            assert {each.short for each in READERS if each.name in named} <= set(names)
            core = tuple(each.short for each in READERS if each.name in named)
            assert not any(suits(core, form) for form in forms), "the named readers contradict each other"
    assert refused or kinds == ("none",)


def test_forms_have_reasons() -> None:
    def chosen(*names: str) -> str:
        form = choose_form(names)
        return explain_form(names, form)

    assert chosen("spark", "trino", "duckdb") == (
        "Format version 2 with equality deletes, which all its readers can read."
    )
    assert chosen("snowflake", "trino") == (
        "Format version 2 with position deletes, because Snowflake cannot read equality deletes."
    )
    # unknown support counts as no support
    assert chosen("bigquery") == (
        "Format version 2 with position deletes, because it is not known that Google BigQuery can read equality "
        "deletes."
    )
    assert chosen("databricks", "snowflake") == (
        "Format version 3 with deletion vectors, because Databricks Runtime 18 and Snowflake cannot read equality "
        "deletes, and Databricks Runtime 18 cannot read position deletes."
    )


def test_contradictory_readers_are_named_with_the_forms_they_read() -> None:
    with pytest.raises(SpecError) as error:
        choose_form(("trino", "athena", "spark", "databricks"))
    assert error.value.message == (
        "No table of format version 2 or 3 is known to be read by Amazon Athena and Databricks Runtime 18: Amazon "
        "Athena reads equality deletes and position deletes, up to format version 2; Databricks Runtime 18 reads "
        "deletion vectors, up to format version 3."
    )
    with pytest.raises(SpecError, match="format version 3 is known to be read by StarRocks: StarRocks reads equality"):
        choose_form(("starrocks", "spark"), (3,))


def test_a_table_that_does_not_fit_its_readers_names_the_remedy() -> None:
    clean = {"total-equality-deletes": "0", "total-position-deletes": "0"}
    assert find_misfit(("snowflake",), 2, clean, "resolved") is None
    assert find_misfit(("snowflake",), 2, {}, "resolved") is None
    assert str(find_misfit(("snowflake",), 2, {**clean, "total-equality-deletes": "3"}, "resolved")) == (
        "The table has format version 2, and Snowflake cannot read equality deletes. Run the job set_readers."
    )
    # a missing total proves nothing
    assert find_misfit(("snowflake",), 2, {"total-records": "3"}) is not None
    assert find_misfit(("databricks",), 2, clean) is None
    assert find_misfit(("databricks",), 2, clean, "resolved") is not None
    refused = find_misfit(("athena",), 3, clean)
    assert refused is not None and refused.remedy == "The format version cannot be lowered: feed a new table for them."


def test_columns_that_a_reader_cannot_read_are_named() -> None:
    clean = {"total-equality-deletes": "0", "total-position-deletes": "0"}
    element = {"type": "list", "element-id": 4, "element": "timestamptz_ns"}
    columns: list[dict[str, Any]] = [
        {"id": 1, "name": "id", "type": "long", "initial-default": 0},
        {"id": 2, "name": "at", "type": {"type": "struct", "fields": [{"id": 3, "name": "each", "type": element}]}},
    ]
    assert find_misfit(("duckdb",), 3, clean, "resolved", columns) is None
    assert str(find_misfit(("bigquery",), 3, clean, "resolved", columns)) == (
        "The table has format version 3, and Google BigQuery cannot read default values, and Google BigQuery cannot "
        "read timestamps in nanoseconds. Feed a table without such columns for them."
    )
