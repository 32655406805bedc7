"""Run moto's server of AWS services; :mod:`local_services.catalogs` starts this in a separate environment.

Moto accepts every update of a table. Glue refuses one with an outdated ``VersionId``, which is how Iceberg's commits
exclude each other; this program adds that check.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.glue.responses import GlueResponse
from moto.server import main

_update, _one = GlueResponse.update_table, threading.Lock()


def update_table(self: Any) -> Any:
    """Update a table if it is at the version in the request."""
    given = self.parameters
    with _one:
        table = self.glue_backend.get_table(given["DatabaseName"], given["TableInput"]["Name"])
        version = table.as_dict()["VersionId"]
        if given.get("VersionId") not in (None, version):
            raise JsonRESTError("ConcurrentModificationException", f"The table is at version {version}.")
        return _update(self)


if __name__ == "__main__":
    GlueResponse.update_table = update_table
    main(["-H", "127.0.0.1", "-p", sys.argv[1]])
