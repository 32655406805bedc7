"""Results of checks of the surroundings, from workers and the programs that they start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, ParamSpec

from lakecdc.contract.secrets import mask

P = ParamSpec("P")
State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """A line of a check.

    :param check: the subject, such as ``java`` or ``source slot``.
    :param state: ``fail`` stops a job, ``warn`` may stop one or is worth knowing.
    :param found: the result.
    :param remedy: what to do, unless all is well or ``found`` says it.
    """

    check: str
    state: State
    found: str
    remedy: str | None = None

    def facts(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Finding:
        """Decode the result of :meth:`facts`."""
        return cls(**facts)


def tried(check: str, look: Callable[P, str | Finding], *arguments: P.args, **more: P.kwargs) -> Finding:
    """Run a check that returns its result, or a whole finding; an error becomes a finding of state ``fail``."""
    try:
        result = look(*arguments, **more)
    except Exception as error:
        # errors of this project have both, those of drivers and of the system neither
        text = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        return Finding(check, "fail", mask(" ".join(str(text).split())), getattr(error, "hint", None))
    return result if isinstance(result, Finding) else Finding(check, "ok", result)


def summed(check: str, each: Iterable[Finding], well: str) -> Iterator[Finding]:
    """Merge the findings that are ok into one line, such as ``3 can be read``, and yield the others."""
    known = list(each)
    yield from (finding for finding in known if finding.state != "ok")
    if number := sum(finding.state == "ok" for finding in known):
        yield Finding(check, "ok", f"{number} {well}")
