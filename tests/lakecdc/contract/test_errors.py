"""A refusal is distinguished from an unreachable server."""

from __future__ import annotations

import pytest

from lakecdc.contract.errors import is_refusal


@pytest.mark.parametrize(
    ("text", "state", "refused"),
    [
        ('FATAL:  password authentication failed for user "me"', None, True),
        ('FATAL:  database "shop" does not exist', None, True),
        ("fe_sendauth: no password supplied", None, True),
        ("Access denied for user 'me'@'%' (using password: YES)", None, True),
        ("path to '/nowhere/catalog.db': '/nowhere' does not exist", None, True),
        ("NotAuthorizedException: Not authorized: no token", None, True),
        ("anything", "28P01", True),
        ("anything", "3D000", True),
        ("Connection refused", "08001", False),
        ('relation "orders" does not exist', "42P01", False),
        ("the server closed the connection unexpectedly", None, False),
    ],
)
def test_refusals_are_distinguished_from_outages(text: str, state: str | None, refused: bool) -> None:
    assert is_refusal(text, state) is refused
