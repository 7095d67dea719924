"""The upstreams of a configuration: its own, and those of its listeners."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from proxy.config.model import Config
from proxy.config.sections.upstream import MAIN, Upstream


def upstreams_in(listeners: Iterable[tuple[str, Any]], upstream: Upstream | None) -> list[tuple[str, Upstream]]:
    """Return every configured upstream with its key."""
    own = [(f"{key}.{MAIN}", listener.upstream) for key, listener in listeners if listener.upstream is not None]
    return own if upstream is None else [(MAIN, upstream), *own]


def upstreams_of(config: Config) -> list[tuple[str, Upstream]]:
    """Return every upstream of a configuration, with its key."""
    return upstreams_in(((f"listener[{at}]", listener) for at, listener in enumerate(config.listeners, 1)), config.upstream)


def distinct_upstreams(config: Config) -> dict[Upstream, str]:
    """Return each upstream once, with a name for it: `[upstream]` first."""
    upstreams = {config.upstream: MAIN}
    for listener in config.listeners:
        if listener.upstream is not None:
            upstreams.setdefault(listener.upstream, f"listener.{listener.name}.{MAIN}")
    return upstreams
