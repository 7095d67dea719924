"""The quota of a group: its name for operators, metrics and logs.

Source: Kafka 3.8 `DefaultQuotaCallback.quotaLimit`, its order of look-ups.
"""

from collections.abc import Mapping
from typing import Final

from quota.callbacks.callback import CLIENT_ID_TAG, USER_TAG, rule_keys
from quota.entity import ClientQuotaEntity
from quota.groups.declared_groups import GROUP_TAG
from quota.limits import Rule, RuleKey
from quota.names import kept_name

__all__ = ["CLIENT_ID_TAG", "USER_TAG", "group_name", "name_of", "rule_of"]
STATIC_DEFAULT: Final = "static default"
UNLIMITED_RULE: Final = "none"
CALLBACK: Final = "callback"


def rule_of(tags: Mapping[str, str], rules: Mapping[RuleKey, Rule], *, custom_callback: bool = False, limited: bool = True) -> str:
    """Return the entity whose quota applies to the group of `tags`, such as `user=alice,client-id=<default>`, or the declared group.

    Args:
        tags: the group's tags, as the callback returned them; the user in its encoded form.
        rules: the quotas of this type.
        custom_callback: whether the operator's class decides, so that the reason is unknown.
        limited: whether the group has a bound; if so, a group without a matching entity has the static default.
    """
    declared = tags.get(GROUP_TAG)
    if declared is not None:
        return f"{GROUP_TAG}={declared}"
    if custom_callback:
        return CALLBACK
    for key in rule_keys(tags):
        if key in rules:
            return name_of(rules[key][0])
    return STATIC_DEFAULT if limited else UNLIMITED_RULE


def name_of(entity: ClientQuotaEntity) -> str:
    """Return `user=U`, `client-id=C` or both, long names cut; a default entity is written as in Kafka."""
    user = None if entity.user is None else f"user={kept_name(entity.user)}"
    client_id = None if entity.client_id is None else f"client-id={kept_name(entity.client_id)}"
    return ",".join(part for part in (user, client_id) if part is not None)


def group_name(tags: Mapping[str, str]) -> str:
    """Return the common tags of the group's members, such as `client-id=etl`; `everyone` when there are none."""
    return ",".join(f"{key}={value}" for key, value in tags.items() if value) or "everyone"
