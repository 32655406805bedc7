"""Which engines can read a table."""

from __future__ import annotations

from pathlib import Path

from lakecdc.metadata.readers import READERS, can_read, gained_by_rewrite, readable_by, ready_for_v4, refused_by

ALL = {reader.name for reader in READERS}


def test_a_table_without_deletes_is_for_everybody_of_its_version() -> None:
    assert set(readable_by(2, 0, 0)) == ALL
    assert refused_by(2, 0, 0) == []
    assert set(readable_by(3, 0, 0)) | set(refused_by(3, 0, 0)) == ALL
    assert "Amazon Athena" in refused_by(3, 0, 0)
    assert readable_by(4, 0, 0) == []


def test_equality_deletes_shut_engines_out_and_the_rewrite_lets_them_in() -> None:
    assert {"Snowflake", "PyIceberg 0.12", "Databricks Runtime 18"} <= set(refused_by(2, 9, 0))
    assert gained_by_rewrite(2, 9, 0) == ["PyIceberg 0.12", "Snowflake"]
    # deletion vectors are what Databricks reads
    assert gained_by_rewrite(3, 9, 0) == ["Databricks Runtime 18", "PyIceberg 0.12", "Snowflake"]
    assert gained_by_rewrite(2, 0, 9) == []


def test_what_is_not_known_is_neither_read_nor_refused() -> None:
    (redshift,) = [reader for reader in READERS if reader.name == "Amazon Redshift"]
    assert can_read(redshift, 2, 1, 0) is None
    assert redshift.name not in readable_by(2, 1, 0) + refused_by(2, 1, 0) + gained_by_rewrite(2, 1, 0)
    assert can_read(redshift, 2, 0, 1) is True


def test_every_entry_has_a_source() -> None:
    assert all(reader.sources for reader in READERS)
    assert sorted(ALL) == sorted(reader.name for reader in READERS)


def test_the_page_says_the_same() -> None:
    said = {True: "yes", False: "no", None: "not known"}
    text = (Path(__file__).parents[3] / "docs" / "governance.md").read_text()
    rows = [
        "| " + " | ".join([r.name, *(said[x] for x in (r.equality_deletes, r.position_deletes, r.deletion_vectors))])
        for r in READERS
    ]
    assert [row for row in rows if f"{row} |\n" not in text] == []


def test_a_table_is_ready_for_version_4_without_equality_deletes() -> None:
    assert ready_for_v4(0)
    assert not ready_for_v4(1)
