"""Checks of upstream settings that contradict each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from proxy.config.model import Config
from proxy.config.sections.upstream import MAIN, Upstream
from proxy.config.sections.upstreams import upstreams_in
from proxy.config.toml_reader import Place


def check_upstreams(listeners: Sequence[tuple[str, Any]], upstream: Upstream | None, place: Place) -> None:
    """Report contradictions between the protocols of brokers and listeners."""
    for key, one in upstreams_in(listeners, upstream):
        if one.tls is not None and (one.protocol or "").endswith("PLAINTEXT"):
            secure = (one.protocol or "").replace("PLAINTEXT", "SSL")
            place.add(f"{key}.tls", f"has no effect with {one.protocol}", f'write protocol = "{secure}"')
        if one.credentials is not None and one.wants_login is False:
            place.add(f"{key}.credentials", f"have no effect with {one.protocol}, where no client logs in", "leave them out")
    for key, listener in listeners:
        led_to = listener.upstream or upstream
        if led_to is None or led_to.wants_login is None or listener.protocol == "auto":
            continue
        if listener.declares_sasl and not led_to.wants_login:
            place.add(
                f"{key}.protocol",
                f"{listener.protocol} makes clients log in, and the brokers accept no login there ({led_to.protocol})",
                f"write the brokers' SASL listener into {key}.upstream, or another protocol",
            )
        if not listener.declares_sasl and led_to.wants_login:
            place.add(
                f"{key}.protocol",
                f"{listener.protocol} has no login, and the brokers require one there ({led_to.protocol})",
                f"write the brokers' listener without SASL into {key}.upstream, or another protocol",
            )


def advice_on_clear_text(config: Config) -> list[str]:
    """Return the listeners that remove TLS from bytes that are readable on the way to the broker."""
    open_ones = [
        (listener.name, MAIN if listener.upstream is None else f"listener.{MAIN}")
        for listener in config.listeners
        if listener.tls is not None and _is_unencrypted(listener.upstream or config.upstream)
    ]
    return [
        f"listener {name}: requests that clients encrypt are sent to the brokers in the clear; "
        f"write [{key}.tls] where others can read the network"
        for name, key in open_ones
    ]


def _is_unencrypted(upstream: Upstream) -> bool:
    return not upstream.uses_tls and not all(address.is_loopback for address in upstream.bootstrap)
