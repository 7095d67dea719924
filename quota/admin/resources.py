"""Entities as names of configuration resources, in the form of ZooKeeper's paths (KIP-422 does not define the names)."""

from typing import Final

from quota.admin.messages import CLIENT_ID, INVALID_REQUEST, USER, AdminError, EntityKey
from quota.entity import DEFAULT, desanitize
from quota.errors import SanitizedNameError

_CLIENTS: Final = "clients"


def entity_of_user(name: str) -> EntityKey:
    """Return the entity of a USER resource: `<user>` or `<user>/clients/<client>`, sanitised; "" and `<default>` are the default entity.

    Raises:
        AdminError: the name is not that of an entity.
    """
    match name.split("/"):
        case [user]:
            return ((USER, _name(user)),)
        case [user, folder, client] if folder == _CLIENTS:
            return ((CLIENT_ID, _name(client)), (USER, _name(user)))
    raise AdminError(INVALID_REQUEST, f'Invalid user "{name}": it has to be <user> or <user>/clients/<client>, names percent-encoded')


def entity_of_client(name: str) -> EntityKey:
    """Return the entity of a CLIENT resource: `<client>`, sanitised; "" and `<default>` are the default entity.

    Raises:
        AdminError: the name is not that of an entity.
    """
    if "/" in name:
        raise AdminError(INVALID_REQUEST, f'Invalid client "{name}": it has to be <client>, percent-encoded')
    return ((CLIENT_ID, _name(name)),)


def _name(text: str) -> str | None:
    if text in ("", DEFAULT):
        return None
    try:
        return desanitize(text)
    except SanitizedNameError as error:
        raise AdminError(INVALID_REQUEST, f'Invalid name "{text}": {error}') from error
