"""Advice on quotas that are valid, and probably mean something else. Pure."""

from collections.abc import Collection, Iterator

from proxy.base.units import shown
from proxy.quota_store.store import StoreContent
from quota.admin.messages import USER
from quota.entity import DEFAULT

_PRINCIPAL = "User:"
_LISTENER = "listener:"


def advice_on_quotas(content: StoreContent, listeners: Collection[str] | None = None) -> list[str]:
    """Return one line for each name that Kafka compares character by character, and that looks like a pattern, a default or a principal.

    Args:
        content: the quotas and switches.
        listeners: names of the listeners; None: they are not known.
    """
    names = dict.fromkeys((kind, name) for entity in content.quotas for kind, name in entity if isinstance(name, str))
    quotas = [line for kind, name in names for line in _about(kind, name)]
    unknown = [target for target in content.switches if target.startswith(_LISTENER) and listeners is not None]
    return quotas + [
        f"the switch {shown(target)} has no effect: no listener has this name"
        for target in unknown
        if target.removeprefix(_LISTENER) not in (listeners or ())
    ]


def _about(kind: str, name: str) -> Iterator[str]:
    what = f"the quota of {kind} = {shown(name)}"
    if name.strip("<>").lower() == "default" and name != DEFAULT:
        yield f'{what} is for a client with exactly this name; write "{DEFAULT}" for clients without a quota of their own'
    if "*" in name:
        yield f"{what} is for a client with exactly this name; names are no patterns: declare a group ([[group]]) for several names"
    if kind == USER and name.startswith(_PRINCIPAL):
        yield f"{what} names a principal; a quota names its user: {shown(name.removeprefix(_PRINCIPAL))}"
