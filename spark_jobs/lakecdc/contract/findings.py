"""Results of checks of the environment, by workers and the programs that they start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec

from lakecdc.contract.secrets import mask

P = ParamSpec("P")
State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """A line of a check.

    :param check: the subject, such as ``java`` or ``source slot``.
    :param state: ``fail`` stops a job, ``warn`` may stop one or is worth knowing.
    :param result: for people.
    :param remedy: what to do, if ``result`` does not contain it.
    """

    check: str
    state: State
    result: str
    remedy: str | None = None

    def facts(self) -> dict[str, Any]:
        return {"check": self.check, "state": self.state, "found": self.result, "remedy": self.remedy}

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Finding:
        """Decode the result of :meth:`facts`."""
        return cls(facts["check"], facts["state"], facts["found"], facts["remedy"])


def run_check(check: str, look: Callable[P, str | Finding], *arguments: P.args, **more: P.kwargs) -> Finding:
    """Run a check that returns its result, or a whole finding; an error becomes a finding of state ``fail``."""
    try:
        result = look(*arguments, **more)
    except Exception as error:
        # our own errors have both attributes, others neither
        text = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        return Finding(check, "fail", mask(" ".join(str(text).split())), getattr(error, "hint", None))
    return result if isinstance(result, Finding) else Finding(check, "ok", result)


def merge_passed(check: str, each: Iterable[Finding], well: str) -> Iterator[Finding]:
    """Merge the findings that are ok into one line, such as ``3 can be read``, and yield the others."""
    known = list(each)
    yield from (finding for finding in known if finding.state != "ok")
    if number := sum(finding.state == "ok" for finding in known):
        yield Finding(check, "ok", f"{number} {well}")
