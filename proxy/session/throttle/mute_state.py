"""Kafka's five mute states of a channel, as a table. Source: Kafka 3.8 `KafkaChannel.ChannelMuteState`."""

import enum
from typing import Final


class MuteState(enum.Enum):
    """Whether a channel is read, and what it waits for if not."""

    NOT_MUTED = "not muted"
    MUTED = "muted"
    MUTED_AND_RESPONSE_PENDING = "muted, response pending"
    MUTED_AND_THROTTLED = "muted, throttled"
    MUTED_AND_THROTTLED_AND_RESPONSE_PENDING = "muted, throttled, response pending"


class MuteEvent(enum.Enum):
    """What moves a channel from state to state, apart from muting and unmuting."""

    REQUEST_RECEIVED = "request received"
    RESPONSE_SENT = "response sent"
    THROTTLE_STARTED = "throttle started"
    THROTTLE_ENDED = "throttle ended"


class IllegalMuteEvent(Exception):
    """An event that cannot happen in this state; the channel closes."""


TRANSITIONS: Final = {
    (MuteState.MUTED, MuteEvent.REQUEST_RECEIVED): MuteState.MUTED_AND_RESPONSE_PENDING,
    (MuteState.MUTED_AND_RESPONSE_PENDING, MuteEvent.RESPONSE_SENT): MuteState.MUTED,
    (MuteState.MUTED_AND_RESPONSE_PENDING, MuteEvent.THROTTLE_STARTED): MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING,
    (MuteState.MUTED_AND_THROTTLED, MuteEvent.THROTTLE_ENDED): MuteState.MUTED,
    (MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, MuteEvent.RESPONSE_SENT): MuteState.MUTED_AND_THROTTLED,
    (MuteState.MUTED_AND_THROTTLED_AND_RESPONSE_PENDING, MuteEvent.THROTTLE_ENDED): MuteState.MUTED_AND_RESPONSE_PENDING,
}
"""All that is legal; every other pair closes the channel."""


def next_state(state: MuteState, event: MuteEvent) -> MuteState:
    """Return the state after `event`.

    Raises:
        IllegalMuteEvent: the table has no such pair.
    """
    after = TRANSITIONS.get((state, event))
    if after is None:
        raise IllegalMuteEvent(f"{event.value} while {state.value}")
    return after


def mute(state: MuteState) -> MuteState:
    """Return the state after muting: a change only for a channel that is read."""
    return MuteState.MUTED if state is MuteState.NOT_MUTED else state


def maybe_unmute(state: MuteState) -> tuple[MuteState, bool]:
    """Return the state after trying to unmute, and whether the channel is read then: only when it waits for nothing."""
    if state is MuteState.MUTED:
        return MuteState.NOT_MUTED, True
    return state, state is MuteState.NOT_MUTED


def reads_enabled(state: MuteState) -> bool:
    """True when the channel is read."""
    return state is MuteState.NOT_MUTED
