"""What a greedy client does: a few steps, again and again, in circumstances that it may choose too."""

import json
from pathlib import Path
from typing import Any, NamedTuple

ACTIONS = (
    "produce",
    "produce_unacked",
    "fetch",
    "ask",
    "begin",
    "finish",
    "half_close",
    "close",
    "reset",
    "log_in",
    "refuse_reading",
    "read",
    "begin_change",
    "name",
    "walk",
    "produce_as_new",
)
PAUSES = ("none", "quiet", "answered", "wait")
SLOTS = 6
CLIENT_IDS = 4
ADDRESSES = 3
WAITS_MS = (1, 40, 400, 1_100, 5_100, 26_000)


class Step(NamedTuple):
    """One thing that a client does on one of its connections, which it opens first where there is none.

    Attributes:
        action: of `ACTIONS`.
        slot: which connection; -1: a new one each time.
        size: bytes of records, or the most that a fetch may bring; for `ask` which API; for `walk` how many items.
        count: how many requests, one behind the other.
        version: chooses among the versions that are tried.
        client_id: chooses a name.
        pause: what it waits for afterwards, of `PAUSES`; `wait_ms` for the last one.
    """

    action: str
    slot: int = 0
    size: int = 0
    count: int = 1
    version: int = 0
    client_id: int = 0
    pause: str = "none"
    wait_ms: int = 0


class Circumstances(NamedTuple):
    """How the proxy is set up, and what the client wants to get.

    Attributes:
        mode: of enforcement.
        goal: what is bounded: produced or fetched bytes, the time of requests, the bytes that the proxy keeps, the items that it looks
            at in one call of its event loop, or how long a client waits that comes from another address afterwards.
        bound: bytes per second; percent of a thread for time; bytes that all connections may keep; items.
        each_client_id: each client-id has the quota; otherwise the user has it.
        logs_in: the listener requires a login.
        session_ms: how long a SASL session lasts, 0: for ever.
        service_us: what a request costs the broker.
        metadata_bytes: how long the broker's Metadata answers are.
        answer_items: how many settings or coordinators its other answers name.
    """

    mode: str = "delay"
    goal: str = "produce"
    bound: float = 10_000.0
    each_client_id: bool = False
    logs_in: bool = False
    session_ms: int = 0
    service_us: int = 0
    metadata_bytes: int = 0
    answer_items: int = 0


class Program(NamedTuple):
    """What is run.

    Attributes:
        before: steps taken once.
        steps: repeated until the time or the number of steps is used up.
        seconds: of the proxy's time, from the first step.
    """

    circumstances: Circumstances
    steps: tuple[Step, ...]
    before: tuple[Step, ...] = ()
    seconds: int = 30
    steps_max: int = 160


def dump(program: Program) -> dict[str, Any]:
    """Return a program as JSON holds it; what is as usual is left out."""
    return {
        "circumstances": _reported(program.circumstances),
        "before": [_reported(step) for step in program.before],
        "steps": [_reported(step) for step in program.steps],
        "seconds": program.seconds,
        "steps_max": program.steps_max,
    }


def load(content: dict[str, Any]) -> Program:
    """Return the program that `dump` wrote."""
    return Program(
        Circumstances(**content["circumstances"]),
        tuple(Step(**step) for step in content["steps"]),
        tuple(Step(**step) for step in content["before"]),
        content["seconds"],
        content["steps_max"],
    )


def read(path: Path) -> Program:
    """Read a seed."""
    return load(json.loads(path.read_text())["program"])


def _reported(value: Any) -> dict[str, Any]:
    usual = value._field_defaults
    return {name: one for name, one in value._asdict().items() if name not in usual or one != usual[name]}
