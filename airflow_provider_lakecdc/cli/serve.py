"""``serve``: serve a catalog in an object store to other engines, as an Iceberg REST catalog."""

from __future__ import annotations

import sys
from argparse import Namespace

from airflow_provider_lakecdc.cli.tables import catalog_of, configuration
from airflow_provider_lakecdc.cli.terminal import print_json, print_lines
from lakecdc.contract.errors import SpecError
from lakecdc.contract.runtime import OBJECT_STORE
from lakecdc.contract.secrets import resolve
from lakecdc.object_store.endpoint import Endpoint, load_certificate
from lakecdc.object_store.open_catalog import open_catalog
from lakecdc.object_store.pyiceberg_applier import PyicebergApplier


def main(args: Namespace) -> int:
    """Serve until the process is interrupted."""
    connection = catalog_of(args, configuration(args))
    properties = resolve(connection.properties, f"catalog {connection.name}")
    if properties.get("type") != OBJECT_STORE:
        raise SpecError(
            f"Catalog {connection.name!r} is of type {properties.get('type')!r}; only {OBJECT_STORE} can be served.",
            hint="Let engines connect to the catalog itself.",
        )
    token = _token(args)
    tls = load_certificate(args.certificate, args.key) if args.certificate else None
    catalog = open_catalog(properties, PyicebergApplier(), writable=args.write)
    endpoint = Endpoint(catalog, writable=args.write, address=(args.host, args.port), token=token, tls=tls)
    facts = {"uri": endpoint.uri, "writable": args.write}
    if token is None:
        facts["token"] = endpoint.token
    if args.json:
        print_json(facts)
    else:
        access = "reads and writes" if args.write else "reads"
        print_lines(f"Serving catalog {connection.name!r} for {access} on {endpoint.uri}")
        if token is None:
            print_lines(f"Token, which is shown only here: {endpoint.token}")
    sys.stdout.flush()
    endpoint.serve()
    return 0


def _token(args: Namespace) -> str | None:
    """Return the token of the options; None if one may be generated and shown on a terminal."""
    if args.token_env and args.token_file:
        raise SpecError("Both --token-env and --token-file are given.", hint="Remove one.")
    if args.token_env:
        return str(resolve({"env": args.token_env}, "--token-env"))
    if args.token_file:
        return str(resolve({"file": args.token_file}, "--token-file"))
    if not sys.stdout.isatty():
        raise SpecError(
            "No token is given, and a generated one is shown only on a terminal, since a log would keep it.",
            hint="Name the environment variable that has it by --token-env, or its file by --token-file.",
        )
    return None
