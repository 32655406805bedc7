"""Renewal and takeover of a lease are never possible at the same time."""

from __future__ import annotations

import pytest

from lakecdc.metadata.lease import Lease, read_lease
from lakecdc.metadata.names import LEASE

END = 1_700_000_090_000


@pytest.mark.parametrize(
    ("now_ms", "renewed", "taken_over"),
    [(END - 1, True, False), (END, False, False), (END + 10_000, False, False), (END + 10_001, False, True)],
)
def test_a_grace_period_separates_renewal_and_takeover(now_ms: int, renewed: bool, taken_over: bool) -> None:
    lease = Lease("t", "a job", 0).renewed(END - 90_000)
    assert lease.until_ms == END
    assert (lease.may_be_renewed(now_ms), lease.may_be_taken_over(now_ms)) == (renewed, taken_over)


@pytest.mark.parametrize(("term_ms", "seconds"), [(0, 100), (1, 100), (90_000, 100), (300_000, 310), (10**12, 910)])
def test_lease_is_over_after_a_bounded_silence(term_ms: int, seconds: float) -> None:
    lease = Lease("t", "a job", END, term_ms)
    assert lease.seconds_of_silence == seconds
    assert lease.is_beyond_term(END - round(seconds * 1000) - 1) and not lease.is_beyond_term(END - 90_000)


def test_the_property_is_read_as_written() -> None:
    lease = Lease("t", "a job", 0).renewed(END)
    assert lease.term_ms == 90_000
    assert read_lease({LEASE: '{"token": "t", "holder": "h", "until_ms": 1}'}) == Lease("t", "h", 1)
    assert read_lease({LEASE: lease.encode()}) == lease
    assert read_lease({}) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"token": "t", "holder": "h", "until_ms": null}',
        '{"token": "t", "holder": "h", "until_ms": 1e999}',
    ],
)
def test_unreadable_leases_are_over(text: str) -> None:
    lease = read_lease({LEASE: text})
    assert lease is not None and lease.may_be_taken_over(END)
