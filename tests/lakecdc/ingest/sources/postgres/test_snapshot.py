"""Cutting tables, and the CSV of Postgres."""

from __future__ import annotations

from datetime import date

import pyarrow as pa

from lakecdc.ingest.formats.text_columns import TextColumn, TypeRows
from lakecdc.ingest.sources.database import deal
from lakecdc.ingest.sources.postgres import snapshot
from lakecdc.ingest.sources.postgres.log import values
from lakecdc.ingest.sources.postgres.snapshot import Chunk, blocks, parse
from lakecdc.ingest.sources.postgres.types import Texts


def test_null_and_the_empty_string_differ() -> None:
    batches = parse(b'1,,""\n2,"a\n""b"", c","NULL"\n', [pa.int32(), pa.string(), pa.string()])
    assert [row for batch in batches for row in batch.to_pylist()] == [
        {"c0": 1, "c1": None, "c2": ""},
        {"c0": 2, "c1": 'a\n"b", c', "c2": "NULL"},
    ]


def test_an_empty_line_is_a_row_of_one_column() -> None:
    assert [row for batch in parse(b'a\n\n""\n\n', [pa.string()]) for row in batch.to_pylist()] == [
        {"c0": "a"}, {"c0": None}, {"c0": ""}, {"c0": None}
    ]  # fmt: skip


def test_blocks_never_cut_a_row() -> None:
    large = b"x" * (snapshot._BLOCK_BYTES - 1)
    for rows, sizes in (([b"a\n", large, b"b\n", b"c\n"], [len(large) + 2, 4]), ([], [])):
        answers = iter([*[(len(row), row) for row in rows], (-1, b"")])
        assert [len(block) for block in blocks(lambda answers=answers: next(answers))] == sizes  # type: ignore[misc]


def test_tables_are_divided_into_page_ranges() -> None:
    assert Chunk("s", "t").condition() == "true"
    assert Chunk("s", "t", 0, 8).condition() == "ctid < '(8,0)'::tid"
    assert Chunk("s", "t", 8, None).condition() == "ctid >= '(8,0)'::tid"
    assert Chunk("s", "t", 8, 16).condition() == "ctid >= '(8,0)'::tid AND ctid < '(16,0)'::tid"


def test_chunks_are_divided_among_a_limited_number_of_tasks() -> None:
    chunks = [Chunk("s", "t", i) for i in range(5)]
    assert [len(share) for share in deal(chunks, 2)] == [3, 2]
    assert [len(share) for share in deal(chunks, 9)] == [1] * 5


def test_binary_copy_headers_and_trailers_are_removed() -> None:
    header = b"PGCOPY\n\xff\r\n\0" + b"\0" * 8
    rows = [header + b"\0\1\0\0\0\2ab", b"\0\1\0\0\0\1c", b"\xff\xff"]
    for sent, expected in ((rows, [b"ab", b"c"]), ([header + b"\xff\xff"], [])):
        left = iter([*[(len(row), row) for row in sent], (-1, b"")])
        assert list(values(lambda left=left: next(left))) == expected  # type: ignore[misc]


def test_a_block_refused_by_arrow_does_not_change_the_next() -> None:
    columns = (
        TextColumn("day", "date", "date"),
        TextColumn("ok", "bool", "boolean"),
        TextColumn("n", "text", "string"),
    )
    copied = [b"infinity,t,a\n", b"2024-01-02,f,\n"]
    rows = {t.infinity: TypeRows(columns, (), t) for t in (Texts("bounds"), Texts())}
    read = {name: snapshot.typed(map(bytearray, copied), typing) for name, typing in rows.items()}
    second = [{"c0": date(2024, 1, 2), "c1": False, "c2": None, "misfits": None}]
    assert [table.to_pylist() for table in read["bounds"]] == [
        [{"c0": date(9999, 12, 31), "c1": True, "c2": "a", "misfits": None}],
        second,
    ]
    assert [table.to_pylist() for table in read["quarantine"]] == [
        [{"c0": None, "c1": True, "c2": "a", "misfits": [("day", "infinity")]}],
        second,
    ]
