"""Messages of other libraries are reported without row values."""

from __future__ import annotations

import pytest

from lakecdc.contract.secrets import without_values


@pytest.mark.parametrize(
    ("message", "redacted"),
    [
        (
            "SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'it's me' of the type \"STRING\" cannot",
            'SparkNumberFormatException: [CAST_INVALID_INPUT] The value … of the type "STRING" cannot',
        ),
        (
            '[CAST_OVERFLOW] The value -5000000000L of the type "BIGINT"',
            '[CAST_OVERFLOW] The value … of the type "BIGINT"',
        ),
        (
            "Failed to parse string: '078-05-1120' as a scalar of type int32",
            "Failed to parse string: … as a scalar of type int32",
        ),
        ("Integer value 300 not in range\nmore 301", "Integer value … not in range"),
        ("2024-02-31 is no date", "… is no date"),
    ],
)
def test_values_are_hidden(message: str, redacted: str) -> None:
    assert without_values(message) == redacted
