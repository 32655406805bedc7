"""The options of all jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["done", "nothing", "skipped", "unsupported", "conflict", "failed"]


@dataclass(frozen=True)
class JobOptions:
    """Options of all jobs.

    :param dry_run: plan and measure, change nothing.
    :param fail_on: outcomes that fail the job although they are not failures, such as ``skipped``.
    """

    dry_run: bool = False
    fail_on: tuple[Outcome, ...] = ()
