"""Reads `quotas.toml` with the same rules as the proxy. A contract test compares both readers."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipeline.errors import BadInputError
from pipeline.storage.paths import AnyPath
from quota.callbacks.callback import DefaultQuotaCallback
from quota.entity import DEFAULT, UNLIMITED, ClientQuotaEntity, ClientQuotaType

FILE_BYTES_MAX: Final = 64 * 2**20
BYTE_RATES: Final = {"producer_byte_rate": ClientQuotaType.PRODUCE, "consumer_byte_rate": ClientQuotaType.FETCH}
NUMBERS: Final = {"request_percentage": ClientQuotaType.REQUEST, "controller_mutation_rate": ClientQuotaType.CONTROLLER_MUTATION}
CONNECTION_RATE: Final = "connection_creation_rate"
_TABLES: Final = {"quota", "switch", "pacing"}
"""Tables of a quota file. Switches and pacings are no quotas, so a simulation leaves them out."""
_ENTITY: Final = ("user", "client-id", "ip")
_LITERAL: Final = ("literal-user", "literal-client-id")
"""Keys for entities with the literal name `<default>`."""
_SIZE: Final = re.compile(r"([0-9]{1,19})(?:\.([0-9]{1,9}))? ?([A-Za-z]{0,3})")
_FACTORS: Final = {"": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_FACTORS_OF_TWO: Final = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


@dataclass(frozen=True, slots=True)
class QuotaFile:
    """The content of a quota file.

    Attributes:
        name: name of the file in reports.
        callbacks: by quota type name, Kafka's default callback over the entities of the file.
        connection_rates: connections per second by address, or by `<default>`.
    """

    name: str
    callbacks: Mapping[str, DefaultQuotaCallback]
    connection_rates: Mapping[str, float] = field(default_factory=dict)

    def bound(self, quota_type: str, user: str, client_id: str) -> float:
        """Return the bound of the group with these tags (the user is percent-encoded), `UNLIMITED` without a quota."""
        callback = self.callbacks.get(quota_type)
        if callback is None:
            return UNLIMITED
        limit = callback.quota_limit(ClientQuotaType(quota_type), {"user": user, "client-id": client_id})
        return UNLIMITED if limit is None else limit

    def source(self, quota_type: str, user: str, client_id: str) -> str | None:
        """Return the display name of the entity that gives the group with these tags its quota; None when the file has none."""
        callback = self.callbacks.get(quota_type)
        rule = None if callback is None else callback.rule({"user": user, "client-id": client_id})
        return None if rule is None else str(rule[0])

    def connection_bound(self, ip: str) -> float:
        """Return the bound of an address in connections per second."""
        return self.connection_rates.get(ip, self.connection_rates.get(DEFAULT, UNLIMITED))


def read_quota_file(path: AnyPath) -> QuotaFile:
    """Read a quota file.

    Raises:
        BadInputError: the file cannot be read or parsed, or has an entry that the proxy refuses.
    """
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise BadInputError(f"{path}: more than {FILE_BYTES_MAX} bytes; not a quota file")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path}: cannot be read ({error}); name a quotas.toml") from error
    return quota_file_of(text, str(path))


def quota_file_of(text: str, path: str) -> QuotaFile:
    """Parse the text of a quota file.

    Args:
        text: content of the file, TOML.
        path: name of the file in errors.

    Raises:
        BadInputError: the text cannot be parsed, or has an entry that the proxy refuses.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadInputError(f"{path}: not TOML ({error}); run `sluice check-config {path}` for details") from error
    rows = table.get("quota", [])
    if set(table) - _TABLES or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInputError(f"{path}: not a quota file; write every quota under [[quota]]")
    callbacks = {quota_type.value: DefaultQuotaCallback() for quota_type in ClientQuotaType}
    rates: dict[str, float] = {}
    for number, row in enumerate(rows, 1):
        try:
            _enter(row, callbacks, rates)
        except (ValueError, TypeError, KeyError) as error:
            raise BadInputError(f"{path}: quota[{number}]: {error}; run `sluice check-config {path}` for all problems") from error
    return QuotaFile(Path(path).name, callbacks, rates)


def _enter(row: dict[str, Any], callbacks: Mapping[str, DefaultQuotaCallback], rates: dict[str, float]) -> None:
    entity = [key for key in _ENTITY if key in row]
    known = {*_ENTITY, CONNECTION_RATE} if "ip" in entity else {*_ENTITY, *_LITERAL, *BYTE_RATES, *NUMBERS}
    strange = [key for key in row if key not in known]
    if strange:
        raise ValueError(f'"{strange[0]}" is not known here')
    if not entity or ("ip" in entity and len(entity) > 1):
        raise ValueError("needs user, client-id, both, or ip alone")
    if any(not isinstance(row[key], str) or not row[key] for key in entity):
        raise ValueError(f"{entity[0]} is not a name")
    if "ip" in entity:
        rates[row["ip"]] = float(row[CONNECTION_RATE])
        return
    client = ClientQuotaEntity(row.get("user"), row.get("client-id"), *(row.get(key) is True for key in _LITERAL))
    for key, quota_type in {**BYTE_RATES, **NUMBERS}.items():
        if key in row:
            callbacks[quota_type.value].update_quota(quota_type, client, _rate(key, row[key]))


def _rate(key: str, value: object) -> float:
    number = float(_bytes(value)) if key in BYTE_RATES and isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not number > 0 or (key in BYTE_RATES and math.isinf(number)):
        raise ValueError(f"{key} is not a number above 0")
    return min(float(number), UNLIMITED)


def _bytes(text: str) -> int:
    match = _SIZE.fullmatch(text)
    factor = None if match is None else {**_FACTORS, **_FACTORS_OF_TWO}.get(match[3])
    if match is None or factor is None:
        raise ValueError(f'"{text}" is not a size such as "1MiB"')
    part = match[2] or ""
    return int(int(match[1] + part) * factor // 10 ** len(part))
