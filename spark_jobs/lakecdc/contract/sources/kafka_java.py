"""Translate client settings from librdkafka's names to those of Kafka's Java client.

Sources: librdkafka's ``CONFIGURATION.md``; Kafka's documentation, "Consumer Configs", "Admin Configs" and "Security";
KIP-651 for PEM.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Java's settings that Spark decides
OWN_SETTINGS = frozenset({"key.deserializer", "value.deserializer", "interceptor.classes"})

# the same name and meaning
_SAME = frozenset(
    {
        "client.id",
        "client.rack",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "isolation.level",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.ms",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "ssl.key.password",
        "ssl.keystore.location",
        "ssl.keystore.password",
    }
)
_RENAMED = {
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.location": "ssl.truststore.location",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
}
_TRANSLATED = frozenset(
    {
        "ssl.endpoint.identification.algorithm",
        "sasl.kerberos.keytab",
        "sasl.kerberos.principal",
        "sasl.password",
        "sasl.username",
        "security.protocol",
    }
)
# settings that only librdkafka needs
_LEFT_OUT = ("api.version.", "broker.address.", "debug", "fetch.queue.", "log", "queued.", "socket.", "statistics.")
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def unknown(settings: Mapping[str, Any]) -> list[str]:
    """Return the names of librdkafka's settings without a known equivalent in Java's client."""
    known = _SAME | _TRANSLATED | set(_RENAMED)
    return [name for name in settings if name not in known and not name.startswith(_LEFT_OUT)]


def translated(settings: Mapping[str, Any], more: Mapping[str, Any] = {}) -> dict[str, str]:
    """Return settings of Java's client.

    :param settings: in librdkafka's names, all known, secrets resolved.
    :param more: in Java's names; they take precedence.
    """
    java = {_RENAMED.get(n, n): _text(v) for n, v in settings.items() if n in _SAME or n in _RENAMED}
    if "security.protocol" in settings:
        java["security.protocol"] = str(settings["security.protocol"]).upper()
    if "ssl.endpoint.identification.algorithm" in settings:
        algorithm = settings["ssl.endpoint.identification.algorithm"]
        java["ssl.endpoint.identification.algorithm"] = "" if algorithm == "none" else str(algorithm)
    # librdkafka reads PEM, and PKCS#12 in "keystore" settings
    if {"ssl.truststore.location", "ssl.truststore.certificates"} & set(java):
        java["ssl.truststore.type"] = "PEM"
    if "ssl.keystore.location" in java:
        java["ssl.keystore.type"] = "PKCS12"
    elif "ssl.keystore.key" in java:
        java["ssl.keystore.type"] = "PEM"
    java |= {name: _text(value) for name, value in more.items()}
    login = _login(java.get("sasl.mechanism", "GSSAPI").upper(), settings)
    if login and "sasl.jaas.config" not in java:
        java["sasl.jaas.config"] = login
        if login.startswith(_KERBEROS):
            java.setdefault("sasl.kerberos.service.name", "kafka")
    return java


def _login(mechanism: str, settings: Mapping[str, Any]) -> str | None:
    """Return the login module of a mechanism in JAAS notation; None if the settings have no login."""
    if mechanism == "GSSAPI" and {"sasl.kerberos.keytab", "sasl.kerberos.principal"} <= set(settings):
        keytab, principal = settings["sasl.kerberos.keytab"], settings["sasl.kerberos.principal"]
        options = {"useKeyTab": "true", "storeKey": "true", "keyTab": keytab, "principal": principal}
        return _jaas(_KERBEROS, options)
    if (mechanism == "PLAIN" or mechanism.startswith("SCRAM-")) and "sasl.username" in settings:
        options = {"username": settings["sasl.username"], "password": settings.get("sasl.password", "")}
        return _jaas(_PLAIN if mechanism == "PLAIN" else _SCRAM, options)
    return None


def _jaas(module: str, options: Mapping[str, Any]) -> str:
    escaped = {name: str(value).replace("\\", "\\\\").replace('"', '\\"') for name, value in options.items()}
    arguments = " ".join(f'{name}="{value}"' for name, value in escaped.items())
    return f"{module} required {arguments};"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
