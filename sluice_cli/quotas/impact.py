"""The effect of quotas on the last day, by its metering files."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from proxy.base.clock import wall_time_s
from proxy.base.packages import METERING, missing, need, remedy
from sluice_cli.quotas.bulk import Quotas

LAST_DAY_S: Final = 24 * 3_600
GROUPS_SHOWN: Final = 10


class UnknownEffectError(Exception):
    """The effect cannot be computed. The message is one line with the reason."""


def impact_lines(metering: Path, after: Quotas) -> list[str]:
    """Return how many groups would have been throttled, then the groups whose waits change most.

    Raises:
        UnknownEffectError: nothing was metered, the files cannot be read, or the pipeline is not installed.
    """
    if lacking := missing(METERING):
        raise UnknownEffectError(f"it {need(lacking)}; {remedy(lacking)}")
    from pipeline.text import human_ms  # both imported here, since only metering files need Arrow
    from pipeline.whatif import forecast

    since_s = wall_time_s() - LAST_DAY_S
    try:
        found = forecast.forecast_groups(metering, {entity.parts: values for entity, values in after.items()}, since_s)
    except forecast.NoForecastError as error:
        raise UnknownEffectError(str(error)) from error
    throttled = [group for group in found.groups if group.throttled]
    newly = sum(not group.throttled_today for group in throttled)
    return [
        f"on the last day of metering ({human_ms(found.load_ms)} of recorded load) {len(throttled):,} of {len(found.groups):,} groups "
        f"would be throttled, {newly:,} of them newly; {sum(1 for group in found.groups if group.throttled_today):,} were "
        "(requests as recorded: an upper bound)",
        *(
            f"  {group.group} ({group.quota_type}, {group.node or '-'}): {group.text}"
            for group in sorted(throttled, key=lambda group: group.wait_ms_today - group.wait_ms)[:GROUPS_SHOWN]
        ),
    ]
