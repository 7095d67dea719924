"""What a switch can be for, and how it is written."""

from typing import Final

from proxy.units import shown
from quota.admin.messages import CLIENT_ID, IP, USER

ALL: Final = "all"
LISTENER: Final = "listener:"
ENTITY: Final = "entity:"
TARGET_BYTES_MAX: Final = 2_048


def read_target(value: object) -> str:
    """Return the target of a switch as it is written: "all", "listener:NAME", "entity:user=NAME,client-id=NAME", "entity:ip=ADDRESS".

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str) or len(value.encode("utf-8", "replace")) > TARGET_BYTES_MAX:
        raise ValueError(f"{shown(value)} is not a target")
    if value == ALL or (value.startswith(LISTENER) and len(value) > len(LISTENER)):
        return value
    if not value.startswith(ENTITY) or not value.removeprefix(ENTITY).startswith((f"{USER}=", f"{CLIENT_ID}=", f"{IP}=")):
        raise ValueError(f"{shown(value)} is not a target")
    return value
