"""Names of Kafka's APIs, as pages show them."""

from typing import Final

from protocol.api_keys import TABLE
from proxy.telemetry.counters import UNKNOWN_KEY

API_NAMES: Final[dict[int, str]] = {**{api["key"]: api["name"] for api in TABLE["apis"]}, UNKNOWN_KEY: "unknown"}
