"""Decides which principals may read and change quotas; the first check of every request. No I/O.

A broker requires ALTER_CONFIGS and DESCRIBE_CONFIGS on the cluster. By default Sluice allows no principal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from proxy.quota_admin.requester import Requester, Right
from proxy.quota_store.store import Quotas
from quota.admin.messages import CLIENT_ID, USER, Alteration, EntityKey, entity_key
from quota.entity import ANONYMOUS

if TYPE_CHECKING:
    from proxy.config.sections.admin import Authority, QuotaAdmin

DENIED: Final = "Cluster authorization failed."
_UNKNOWN: Final = "__unknown__"


class Rules(NamedTuple):
    """The configured rules."""

    authority: Authority = "nobody"
    principals: frozenset[str] = frozenset()
    super_principals: frozenset[str] = frozenset()
    """Principals that may change all quotas, including those that apply to themselves."""
    describe_principals: frozenset[str] = frozenset()
    """Principals that may read all quotas, and may change none."""
    describe_self: bool = False
    deny_self: bool = True

    @classmethod
    def of(cls, settings: QuotaAdmin) -> Self:
        """Return the rules of `[quota_admin]`."""
        named = (frozenset(settings.principals), frozenset(settings.super_principals), frozenset(settings.describe_principals))
        return cls(settings.authority, *named, describe_self=settings.describe_self, deny_self=settings.deny_self)


class Authorizer:
    """Applies the rules in force; a reload replaces them.

    Attributes:
        rules: the rules in force.
    """

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()

    def may_alter(self, requester: Requester, broker_allows: bool | None = None) -> bool:
        """Whether a requester may change quotas at all.

        Args:
            requester: the requester.
            broker_allows: result of the broker on the requester's own connection; None: there is no conclusive result.
        """
        if requester.way == "http":
            return requester.right == "write"
        principal = _known(requester.principal)
        if self.rules.authority == "broker":
            return broker_allows is True and principal != str(ANONYMOUS)
        return self.rules.authority == "list" and principal is not None and principal in self.rules.principals | self.rules.super_principals

    def may_describe(self, requester: Requester, broker_allows: bool | None = None) -> bool:
        """Whether a requester may read all quotas; arguments as in `may_alter`."""
        if requester.way == "http":
            return requester.right is not None
        return self.may_alter(requester, broker_allows) or (
            self.rules.authority == "list" and _known(requester.principal) in self.rules.describe_principals
        )

    def denial(self, requester: Requester, right: Right) -> str:
        """Return the text of the answer to a requester without a right: who denies it, to whom, and which setting allows it.

        Where the broker decides it is the broker's own text.
        """
        who = requester.principal or "a client without a known user"
        if requester.way == "http" and requester.principal is None:
            return 'a change needs a token with role = "write" ([[admin.tokens]]); the request has none that is known here'
        if requester.way == "http":
            return f'{who} may only read; a change needs a token with role = "write" ([[admin.tokens]])'
        if self.rules.authority == "broker":
            return DENIED
        if right == "read":
            return f"Sluice does not let {who} read quotas: name it in quota_admin.describe_principals"
        return f"Sluice does not let {who} change quotas: name it in quota_admin.principals, or start Sluice with --quota-admin {who}"

    def may_describe_own(self, requester: Requester) -> bool:
        """Whether a requester may read the quotas that apply to itself: an authenticated user, when this is configured."""
        principal = _known(requester.principal)
        return self.rules.describe_self and requester.way == "kafka" and principal is not None and principal != str(ANONYMOUS)

    def is_denied_self(self, requester: Requester, entity: EntityKey) -> bool:
        """Whether an entity names the requester's own user, alone or with a client-id, and the requester must not change it.

        A client without a known user could be any user.
        """
        user = dict(entity).get(USER)
        if user is None or self._may_alter_own(requester):
            return False
        principal = _known(requester.principal)
        return principal is None or principal.partition(":")[2] == user

    def is_denied_default(self, requester: Requester, alteration: Alteration, quotas: Quotas) -> bool:
        """Whether an alteration of the default user would apply to the requester's user, because that user has no quota of its own.

        A client without a login is no particular user: a list with ANONYMOUS allows every client to change also the defaults.
        """
        parts = dict(alteration.entity)
        if parts.get(USER, "") is not None or self._may_alter_own(requester) or requester.principal == str(ANONYMOUS):
            return False
        principal = _known(requester.principal)
        nearer = [] if principal is None else _more_specific(parts, principal.partition(":")[2])
        return any(all(op.key not in quotas.get(entity, {}) for entity in nearer) for op in alteration.ops)

    def _may_alter_own(self, requester: Requester) -> bool:
        return not self.rules.deny_self or requester.way == "http" or _known(requester.principal) in self.rules.super_principals


def _more_specific(parts: Mapping[str, str | None], user: str) -> list[EntityKey]:
    """Return the entities that precede the default user's entity `parts` for all clients of `user`, if they have a quota."""
    own = [((USER, user),), ((USER, user), (CLIENT_ID, None))]
    if CLIENT_ID not in parts:
        return [*map(entity_key, own), entity_key(((USER, None), (CLIENT_ID, None)))]
    if parts[CLIENT_ID] is not None:
        own.append(((USER, user), (CLIENT_ID, parts[CLIENT_ID])))
    return [entity_key(one) for one in own]


def own_part(quotas: Quotas, principal: str) -> dict[EntityKey, Mapping[str, float]]:
    """Return the quotas that can apply to a user: its own, and defaults that name no other client."""
    user = principal.partition(":")[2]
    return {entity: values for entity, values in quotas.items() if _can_hold(dict(entity), user)}


def _can_hold(parts: Mapping[str, str | None], user: str) -> bool:
    if not parts.keys() <= {USER, CLIENT_ID}:
        return False
    return parts.get(USER) == user if parts.get(USER) is not None else parts.get(CLIENT_ID) is None


def _known(principal: str | None) -> str | None:
    """Return the principal; None for the names of clients without a known user."""
    if principal is None or principal.partition(":")[2].startswith(_UNKNOWN):
        return None
    return principal
