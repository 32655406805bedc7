"""What a person has agreed to: the part of the options by which a job is held to the list of a dry run."""

from __future__ import annotations

from dataclasses import dataclass

from lakecdc.contract.errors import InputError


@dataclass(frozen=True)
class Approved:
    """A list of what a dry run has found, to which a person has agreed.

    :param uri: of the list, as the report of the dry run tells it.
    :param sha256: digest of the list, in hexadecimal digits.
    """

    uri: str
    sha256: str


@dataclass(frozen=True)
class ApprovableOptions:
    """Options of jobs that can be restricted to approved findings.

    :param approved: by table, ``uri`` and ``sha256`` of a dry run's list, from its metric ``findings``: only what is in
        the list and found again is removed. A changed list is refused, and so is a table without one. Default: no
        approval is required.
    """

    approved: dict[str, Approved] | None = None

    def approval_of(self, table: str) -> Approved | None:
        """Return the list that holds for a table; None if nobody is asked.

        :raises InputError: there is none of this table.
        """
        if self.approved is None:
            return None
        if table not in self.approved:
            raise InputError("Nobody has agreed to what would be taken away from it.", table=table)
        return self.approved[table]
