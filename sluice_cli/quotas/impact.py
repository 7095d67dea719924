"""The effect of quotas on the last day, by its metering files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from proxy.base.clock import wall_time_s
from proxy.base.packages import METERING, missing, need, remedy
from sluice_cli.quotas.bulk import Quotas

LAST_DAY_S: Final = 24 * 3_600
GROUPS_SHOWN: Final = 10
UNKNOWN_EFFECT: Final = "the effect on the last day is unknown"


def impact_lines(metering: Path, after: Quotas) -> Iterator[str]:
    """Yield how many groups would have been throttled; one line with the reason where that is unknown."""
    if lacking := missing(METERING):
        yield f"{UNKNOWN_EFFECT}: it {need(lacking)}; {remedy(lacking)}"
        return
    from pipeline.whatif import forecast  # imported here, since only metering files need Arrow

    since_s = wall_time_s() - LAST_DAY_S
    try:
        found = forecast.forecast_groups(metering, {entity.parts: values for entity, values in after.items()}, since_s)
    except forecast.NoForecastError as error:
        yield f"{UNKNOWN_EFFECT}: {error}"
        return
    throttled = [group for group in found if group.throttled]
    newly = sum(not group.throttled_today for group in throttled)
    yield (
        f"on the last day of metering {len(throttled):,} of {len(found):,} groups would be throttled, {newly:,} of them newly; "
        f"{sum(1 for group in found if group.throttled_today):,} were (requests as recorded: an upper bound)"
    )
    for group in sorted(throttled, key=lambda group: group.wait_ms_today - group.wait_ms)[:GROUPS_SHOWN]:
        yield f"  {group.group} ({group.quota_type}, {group.node or '-'}): {group.text}"
