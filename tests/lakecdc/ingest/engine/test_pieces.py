"""Files are cut into pieces: every line is read once, wherever the cuts fall."""

from __future__ import annotations

import bz2
import gzip
import os
import random
from pathlib import Path

import pyarrow as pa
import pytest

from lakecdc.ingest.engine import pieces

TASK = pa.RecordBatch.from_arrays([pa.array([0])], ["id"])


def written(folder: Path, texts: list[bytes]) -> dict[str, int]:
    numbers = {}
    for number, text in enumerate(texts):
        path = folder / f"a b {number}.jsonl"
        path.write_bytes(text)
        numbers[path.as_uri()] = number
    return numbers


def read(lines: pieces.Lines) -> list[tuple[int, str]]:
    """Return arrival and text of every line, task by task."""
    rows: list[tuple[int, str]] = []
    for number in range(len(lines.tasks)):
        for batch in lines([pa.RecordBatch.from_arrays([pa.array([number])], ["id"])]):
            rows += zip(batch["arrival"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return [(arrival, value.strip()) for arrival, value in rows]


@pytest.mark.parametrize("chunk", [1, 7, 64, 10_000])
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_every_line_is_read_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, tasks: int
) -> None:
    rng = random.Random(chunk * 10 + tasks)
    texts, expected = [], []
    for number in range(3):
        lines = [b'{"n":%d,"t":"%s"}' % (i, b"\xc3\xa9" * rng.randrange(9)) for i in range(number * 9, number * 9 + 9)]
        ending = b"\r\n" if number == 1 else b"\n"
        text = ending.join(line + (ending if rng.random() < 0.3 else b"") for line in lines)
        texts.append(text + (ending if number else b""))
        expected += [line.decode() for line in lines]
    monkeypatch.setattr(pieces, "_CHUNK", chunk)
    monkeypatch.setattr(pieces, "_SMALLEST", 1)
    planned = pieces.plan(written(tmp_path, texts), tasks, 1 << 40)
    assert planned is not None and planned[1] == sum(map(len, texts))
    assert len(planned[0].tasks) <= tasks
    rows = read(planned[0])
    assert [value for _, value in rows] == expected
    assert [arrival for arrival, _ in rows] == sorted({arrival for arrival, _ in rows})


@pytest.mark.parametrize("kind", ["", ".gz", ".bz2"])
def test_an_overlong_line_is_not_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(pieces, "_CHUNK", 16)
    monkeypatch.setattr(pieces, "_LONGEST_LINE", 100)

    def planned(length: int) -> pieces.Lines:
        path = tmp_path / f"{length}.jsonl{kind}"
        text = b'{"a":1}\n' + b"x" * length + b'\n{"a":2}\n'
        path.write_bytes((gzip if kind == ".gz" else bz2).compress(text) if kind else text)
        plan = pieces.plan({path.as_uri(): 0}, 1, 1 << 40)
        assert plan is not None
        return plan[0]

    assert [len(value) for _, value in read(planned(100))] == [7, 100, 7]
    error = f"The file {tmp_path / '130.jsonl'}{kind} has a line of more than 100 bytes."
    with pytest.raises(pieces.UnusableFileError) as raised:
        read(planned(130))
    assert pieces.unusable_file(raised.value) == error
    with pytest.raises(pieces.UnusableFileError) as raised:
        list(planned(130).that_may_be_long().check([TASK]))
    assert pieces.unusable_file(raised.value) == error
    assert pieces.unusable_file(ValueError("LongLine")) is None


def test_small_files_are_not_searched_for_long_lines(tmp_path: Path) -> None:
    planned = pieces.plan(written(tmp_path, [b"{}\n" * 100]), 1, 1 << 40)
    assert planned is not None and planned[0].that_may_be_long().tasks == ()


def test_a_truncated_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "_CHUNK", 8)
    planned = pieces.plan(written(tmp_path, [b'{"a":1}\n' * 9]), 1, 1 << 40)
    assert planned is not None and planned[0].cut() is None
    lines = planned[0]
    tables = lines([pa.RecordBatch.from_arrays([pa.array([0])], ["id"])])
    next(tables)
    os.truncate(tmp_path / "a b 0.jsonl", 8)
    with pytest.raises(pieces.CutFileError, match=r"a b 0.jsonl had at least 72 bytes and now has 8"):
        list(tables)
    assert "now has 8" in str(lines.cut())
    (tmp_path / "a b 0.jsonl").unlink()
    assert "was removed" in str(lines.cut())


def test_arrival_does_not_depend_on_the_cuts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = written(tmp_path, [b'{"a":1}\n{"a":22}\n{"a":333}\n'])
    whole = pieces.plan(numbers, 1, 1 << 40)
    monkeypatch.setattr(pieces, "_SMALLEST", 1)
    cut = pieces.plan(numbers, 3, 1 << 40)
    assert whole is not None and cut is not None and len(cut[0].tasks) == 3
    assert read(whole[0]) == read(cut[0])


def test_compressed_files_are_read_whole(tmp_path: Path) -> None:
    text, numbers = b'{"a":1}\n\n{"a":2}', {}
    parts = (text[:8], text[8:])
    packed = {"x.jsonl.gz": map(gzip.compress, parts), "x.jsonl.bz2": map(bz2.compress, parts)}
    for number, (name, content) in enumerate(packed.items()):
        (tmp_path / name).write_bytes(b"".join(content))
        numbers[(tmp_path / name).as_uri()] = number
    planned = pieces.plan(numbers, 1, 1 << 40)
    assert planned is not None
    assert [value for _, value in read(planned[0])] == ['{"a":1}', '{"a":2}'] * 2


def test_more_bytes_need_more_tasks(tmp_path: Path) -> None:
    planned = pieces.plan(written(tmp_path, [b'{"a":1}\n' * 100]), 1, 250)
    assert planned is not None and len(planned[0].tasks) == 4


def test_remote_and_zstd_files_are_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "x.zst").write_bytes(b"")
    assert pieces.plan({"s3a://bucket/x.jsonl": 0}, 1, 1 << 40) is None
    assert pieces.plan({(tmp_path / "x.zst").as_uri(): 0}, 1, 1 << 40) is None
    assert pieces.plan({(tmp_path / "gone.jsonl").as_uri(): 0}, 1, 1 << 40) is None


def test_carriage_returns_within_lines_are_odd(tmp_path: Path) -> None:
    planned = pieces.plan(written(tmp_path, [b'{"a":1}\r{"a":2}\n']), 1, 1 << 40)
    assert planned is not None
    with pytest.raises(pieces.OddTextError):
        read(planned[0])
