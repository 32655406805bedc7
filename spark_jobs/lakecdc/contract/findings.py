"""What a check of the surroundings has found, told by workers and by the programs that they start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, ParamSpec

from lakecdc.contract.secrets import mask

P = ParamSpec("P")
State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One line of a check.

    :param check: what was looked at, such as ``java`` or ``source slot``.
    :param state: ``fail`` stops a job, ``warn`` may stop one or is worth knowing.
    :param found: what there is.
    :param remedy: what to do, unless all is well or ``found`` says it.
    """

    check: str
    state: State
    found: str
    remedy: str | None = None

    def facts(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Finding:
        """Read what :meth:`facts` has given."""
        return cls(**facts)


def tried(check: str, look: Callable[P, str | Finding], *arguments: P.args, **more: P.kwargs) -> Finding:
    """Look at something; an error is the finding, and its state ``fail``.

    :param look: gives what there is, or the whole finding.
    """
    try:
        found = look(*arguments, **more)
    except Exception as error:
        # errors of this project have both, those of drivers and of the system neither
        text = getattr(error, "message", None) or f"{type(error).__name__}: {error}"
        return Finding(check, "fail", mask(" ".join(str(text).split())), getattr(error, "hint", None))
    return found if isinstance(found, Finding) else Finding(check, "ok", found)


def summed(check: str, each: Iterable[Finding], well: str) -> Iterator[Finding]:
    """One line for all that is well, and a line for each that is not.

    :param each: findings of things of one kind.
    :param well: what is so of those that are well, such as ``can be read``.
    """
    known = list(each)
    yield from (finding for finding in known if finding.state != "ok")
    if number := sum(finding.state == "ok" for finding in known):
        yield Finding(check, "ok", f"{number} {well}")
