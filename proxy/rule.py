"""Which quota holds a group: the name that operators, metrics and logs use for it.

Source: Kafka 3.8 `DefaultQuotaCallback.quotaLimit`, the order in which it asks.
"""

from collections.abc import Container, Iterator, Mapping
from typing import Final

from quota.declared_groups import GROUP_TAG
from quota.entity import DEFAULT, ClientQuotaEntity, desanitize
from quota.errors import SanitizedNameError

USER_TAG: Final = "user"
CLIENT_ID_TAG: Final = "client-id"
STATIC_DEFAULT: Final = "static default"
UNLIMITED_RULE: Final = "none"
CALLBACK: Final = "callback"


def rule_of(tags: Mapping[str, str], limits: Container[ClientQuotaEntity], *, custom_callback: bool = False, limited: bool = True) -> str:
    """Return the entity whose quota applies to the group of `tags`, such as `user=alice,client-id=<default>`, or the declared group.

    Args:
        tags: of the group, as the callback gave them; the user in its encoded form.
        limits: the entities that have a quota of this type.
        custom_callback: the operator's class decides; only it knows why.
        limited: whether the group has a bound at all; then a group that no entity matches is held by the static default.
    """
    declared = tags.get(GROUP_TAG)
    if declared is not None:
        return f"{GROUP_TAG}={declared}"
    if custom_callback:
        return CALLBACK
    for entity in _candidates(tags.get(USER_TAG, ""), tags.get(CLIENT_ID_TAG, "")):
        if entity in limits:
            return name_of(entity)
    return STATIC_DEFAULT if limited else UNLIMITED_RULE


def name_of(entity: ClientQuotaEntity) -> str:
    """Return `user=U`, `client-id=C` or both; what is a default entity is written as Kafka writes it."""
    user = None if entity.user is None else f"user={entity.user}"
    client_id = None if entity.client_id is None else f"client-id={entity.client_id}"
    return ",".join(part for part in (user, client_id) if part is not None)


def group_name(tags: Mapping[str, str]) -> str:
    """Return what the members of a group have in common, such as `client-id=etl`; `everyone` when it is nothing."""
    return ",".join(f"{key}={value}" for key, value in tags.items() if value) or "everyone"


def _candidates(encoded_user: str, client_id: str) -> Iterator[ClientQuotaEntity]:
    user = _decoded(encoded_user)
    literal_user, literal_client_id = user == DEFAULT, client_id == DEFAULT
    if user and client_id:
        yield ClientQuotaEntity(user, client_id, literal_user, literal_client_id)
        yield ClientQuotaEntity(user, DEFAULT, literal_user)
        yield ClientQuotaEntity(DEFAULT, client_id, literal_client_id=literal_client_id)
        yield ClientQuotaEntity(DEFAULT, DEFAULT)
    elif user:
        yield ClientQuotaEntity(user, None, literal_user)
        yield ClientQuotaEntity(DEFAULT, None)
    elif client_id:
        yield ClientQuotaEntity(None, client_id, literal_client_id=literal_client_id)
        yield ClientQuotaEntity(None, DEFAULT)


def _decoded(encoded: str) -> str:
    try:
        return desanitize(encoded)
    except SanitizedNameError:
        return encoded
