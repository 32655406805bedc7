"""What a server says when it refuses what it was given, so that no retry mends it."""

from __future__ import annotations

import re

# SQL standard: invalid authorization specification, invalid catalog name
_STATES = re.compile(r"28\w{3}|3D000")
# where no state comes with the message: libpq before a session exists, drivers of catalogs, SASL
_TEXTS = re.compile(
    r"password authentication failed|no password supplied|(database|role) \"[^\"]*\" does not exist"
    r"|Access denied for user|Unknown database|path to '[^']*': '[^']*' does not exist"
    r"|NotAuthorizedException|SASL authentication error|SaslAuthenticationException",
    re.IGNORECASE,
)


def is_refusal(text: str, state: str | None = None) -> bool:
    """Tell a wrong password, an unknown database or a missing folder from a server that is out of reach.

    :param text: what was said.
    :param state: the SQLSTATE that came with it.
    """
    return bool(_STATES.fullmatch(state or "") or _TEXTS.search(text))
