"""Texts of hexadecimal digits are decoded together as they are one by one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakecdc.ingest.formats.text_columns import octets

TEXTS = ["\\x00ff10", None, "\\x", "\\xAB", None, "\\x" + "5a" * 9000]


def test_hexadecimal_texts_become_bytes() -> None:
    expected = [None if text is None else bytes.fromhex(text[2:]) for text in TEXTS]
    for begin in range(len(TEXTS) + 1):
        assert octets(pa.array(TEXTS, pa.string()).slice(begin), 2).to_pylist() == expected[begin:]
    assert octets(pa.array(["ab", None, ""])).to_pylist() == [b"\xab", None, b""]


@pytest.mark.parametrize("texts", [["abc", "d"], ["0", None], ["zz"], ["é"]])
def test_odd_hexadecimal_digits_are_refused(texts: list[str | None]) -> None:
    with pytest.raises(ValueError):
        octets(pa.array(texts, pa.string()))
