"""Proxy functions of `gateway.platforms.base` over the proxies that alipes itself uses."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from alipes.compat.hermes.modules.current_app import bridge
from alipes.compat.hermes.modules.utils import normalize_proxy_url


def resolve_proxy_url(
    platform_env_var: str | None = None, *, target_hosts: str | Iterable[str] | None = None
) -> str | None:
    """The proxy for a platform: its own variable, or the one of this process; None for a direct connection."""
    own = bridge().variable(platform_env_var) if platform_env_var else ""
    if own:
        return normalize_proxy_url(own)
    if should_bypass_proxy(target_hosts):
        return None
    proxies = bridge().settings.proxies
    return normalize_proxy_url(proxies.https or proxies.http or proxies.all)


def should_bypass_proxy(target_hosts: str | Iterable[str] | None) -> bool:
    hosts = [target_hosts] if isinstance(target_hosts, str) else [*(target_hosts or ())]
    return any(is_host_excluded_by_no_proxy(host) for host in hosts)


def is_host_excluded_by_no_proxy(hostname: str, no_proxy_value: str | None = None) -> bool:
    """True if the host is in `NO_PROXY`: exactly, as a subdomain, or by `*`."""
    excluded = bridge().settings.proxies.no if no_proxy_value is None else no_proxy_value.split(",")
    host = (urlsplit(f"//{hostname}").hostname or "").lower()
    for entry in (each.strip().lower().lstrip("*").lstrip(".").partition(":")[0] for each in excluded):
        if host and entry and (host == entry or host.endswith(f".{entry}")):
            return True
    return any(each.strip() == "*" for each in excluded)


def proxy_kwargs_for_bot(proxy_url: str | None) -> dict[str, Any]:
    """Keywords for a discord.py client."""
    if not proxy_url:
        return {}
    connector = _socks_connector(proxy_url)
    return {"proxy": proxy_url} if connector is None else {"connector": connector}


def proxy_kwargs_for_aiohttp(proxy_url: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Keywords for an aiohttp session and for each of its requests."""
    if not proxy_url:
        return {}, {}
    connector = _socks_connector(proxy_url)
    return ({}, {"proxy": proxy_url}) if connector is None else ({"connector": connector}, {})


def _socks_connector(proxy_url: str) -> Any:
    """A connector for a SOCKS proxy; None for an HTTP proxy. Raises ImportError without aiohttp_socks."""
    if not proxy_url.lower().startswith("socks"):
        return None
    return import_module("aiohttp_socks").ProxyConnector.from_url(proxy_url, rdns=True)


def platform_httpx_limits() -> Any:
    """Limits for long-lived clients: few idle connections, closed soon."""
    return import_module("httpx").Limits(max_keepalive_connections=10, keepalive_expiry=2.0)
