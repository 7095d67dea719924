"""Request-time quotas: percent of one thread. Source: Kafka 3.8 `ClientRequestQuotaManager`."""

from collections.abc import Callable
from typing import Final

from quota.callbacks.callback import ClientQuotaCallback
from quota.entity import ClientQuotaType
from quota.manager import ClientQuotaManager, RateGroup
from quota.sensor import Rate

PERCENT_PER_NANOSECOND: Final = 1e-7
"""Percent-seconds per nanosecond, 100 / 10^9. It is multiplied, never divided, so that the last digit is Kafka's."""

EXEMPT_NUM_SAMPLES: Final = 2
EXEMPT_WINDOW_MS: Final = 30_000


class ClientRequestQuotaManager(ClientQuotaManager[RateGroup]):
    """Handler time per group, checked with a cap of one window; exempt time is only counted."""

    def __init__(
        self,
        make: Callable[..., RateGroup],
        *,
        num_samples: int = 11,
        window_ms: int = 1000,
        callback: ClientQuotaCallback | None = None,
        lazy: bool = True,
    ) -> None:
        super().__init__(ClientQuotaType.REQUEST, make, num_samples=num_samples, window_ms=window_ms, callback=callback, lazy=lazy)
        self.exempt_request_time = Rate(EXEMPT_NUM_SAMPLES, EXEMPT_WINDOW_MS)

    def record_exempt(self, nanoseconds: int, now_ms: int) -> None:
        """Count time without a quota; does nothing while not enabled."""
        if self.enabled:
            self.exempt_request_time.record(nanoseconds * PERCENT_PER_NANOSECOND, now_ms)

    def _cap_ms(self) -> int | None:
        return self.window_ms
