"""Wrong settings of file formats are refused."""

from __future__ import annotations

from typing import Any

import pytest

from lakecdc.contract.errors import SpecError
from lakecdc.contract.sources import parse_source
from lakecdc.contract.sources.formats import TextSettings

FILES = {"type": "files", "path": "/data/*"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"format": "csv", "xml": {"row_tag": "a"}}, "source.xml is set"),
        ({"format": "xml"}, "source.xml is missing"),
        ({"format": "xml", "xml": {"row_tag": "<a>"}}, "without brackets"),
        ({"format": "text", "text": {"pattern": "(a"}}, "is wrong"),
        ({"format": "text", "text": {"pattern": "(a)"}}, "no named group"),
        ({"format": "csv", "csv": {"delimiter": "||"}}, "one character"),
        ({"format": "csv", "csv": {"header": False}}, "header or names"),
        ({"format": "csv", "csv": {"names": ["a"]}}, "header or names"),
        ({"format": "csv", "csv": {"delimeter": ";"}}, "delimiter"),
        ({"format": "parquet", "records": "kafka"}, "source.records is not supported"),
    ],
)
def test_wrong_settings_are_refused(source: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_source({**FILES, **source}, ())


def test_groups_of_both_notations_are_numbered() -> None:
    settings = TextSettings(r"(?P<first_one>\d+) (x|(?<y>z))(?:q)")
    assert settings.groups() == {"first_one": 1, "y": 3}
    assert settings.unnamed() == r"(\d+) (x|(z))(?:q)"
