"""The trusted certificates, and the proxy of a connection."""

import os
import re
import ssl
from functools import cached_property
from ipaddress import ip_address, ip_network

from alipes.kernel.errors import ConfigError
from alipes.kernel.models import Proxies
from alipes.runtime.http.lazy_httpx import httpx2

LOOPBACK = ("localhost", "127.0.0.0/8", "::1")


def is_loopback(host: str) -> bool:
    """True if `host` is this machine: a loopback address or `localhost`."""
    name = host.removeprefix("[").removesuffix("]")
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name.lower() == "localhost"


class TlsTrust:
    """Trusted certificates: one TLS context per scope, built for the first handshake."""

    def __init__(self, given: ssl.SSLContext | str | None = None) -> None:
        """`given`: a context, the path of a CA file, or None for the system's CAs."""
        self._given = given

    @cached_property
    def tls(self) -> ssl.SSLContext:
        if isinstance(self._given, ssl.SSLContext):
            return self._given
        if self._given is None:
            return system_trust(ssl.get_default_verify_paths())
        try:
            return ssl.create_default_context(cafile=self._given)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"The CA file {self._given} cannot be used ({error}): give a PEM file.") from error

    @cached_property
    def none(self) -> ssl.SSLContext:
        """For pools of plain connections: trusts nothing, so that TLS by mistake fails."""
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def system_trust(paths: ssl.DefaultVerifyPaths) -> ssl.SSLContext:
    """The system's CAs, looked up by hash at the handshake where the system offers that.

    Reading the whole bundle costs 20 ms of CPU; its directory of hashed names costs 3 and is
    equivalent if it contains no fewer certificates.
    """
    bundle, folder = paths.openssl_cafile, paths.openssl_capath
    if not (os.path.isfile(bundle) and os.path.isdir(folder)):
        return httpx2.create_ssl_context(trust_env=False)
    with open(bundle, "rb") as file:
        wanted = file.read().count(b"-----BEGIN CERTIFICATE-----")
    hashed = re.compile(r"[0-9a-f]{8}\.\d+")
    with os.scandir(folder) as entries:
        # `is_file` follows links: dangling ones do not count.
        found = sum(1 for entry in entries if hashed.fullmatch(entry.name) and entry.is_file())
    if not wanted or found < wanted:
        return httpx2.create_ssl_context(trust_env=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(capath=folder)
    return context


def choose_proxy(proxies: Proxies, scheme: str, host: str, port: int) -> str:
    """The URL of the proxy for a connection to a normalised host; empty if it is made directly."""
    url = {"http": proxies.http, "https": proxies.https}[scheme] or proxies.all
    if not url or "*" in proxies.no or is_loopback(host):
        return ""
    if any(_excludes(entry, host, port) for entry in proxies.no):
        return ""
    return url if "://" in url else f"http://{url}"


def _excludes(entry: str, host: str, port: int) -> bool:
    """True if an entry of NO_PROXY names the host: exactly, as its domain, or as its network."""
    try:
        return ip_address(host) in ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        name, _, number = entry.lower().rpartition(":")
        if name and number.isdecimal():
            return int(number) == port and _excludes(name, host, port)
        domain = entry.lower().removeprefix("*").removeprefix(".").removesuffix(".")
        return bool(domain) and (host == domain or host.endswith(f".{domain}"))
