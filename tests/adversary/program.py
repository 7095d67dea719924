"""A program of a greedy client: a few steps that repeat, and the circumstances under which they run."""

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
    """One action of a client on one of its connections; the connection is opened first if it does not exist.

    Attributes:
        action: one of `ACTIONS`.
        slot: the number of the connection; -1: a new connection each time.
        size: bytes of records, or `max_bytes` of a fetch; for `ask` the number of the API, for `walk` the number of items.
        count: how many requests are sent without waiting for answers.
        version: selects one of the versions under test.
        client_id: selects a client-id.
        pause: what the client waits for afterwards, of `PAUSES`; `wait_ms` belongs to the last one.
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
    """How the proxy is configured, and which resource the client tries to get.

    Attributes:
        mode: enforcement mode.
        goal: the bounded resource: produced or fetched bytes, request time, bytes that the proxy keeps, items that it reads in one
            call of its event loop, or how long a client from another address waits afterwards.
        bound: bytes per second; percent of a thread for time; bytes that all connections may keep; items.
        each_client_id: each client-id has the quota; otherwise the user has it.
        logs_in: the listener requires a login.
        session_ms: how long a SASL session lasts, 0: without end.
        service_us: how long the broker works on a request.
        metadata_bytes: how long the broker's Metadata answers are.
        answer_items: how many settings or coordinators its other answers name.
        paced: whether bytes pass by a schedule.
        workers: processes that share usage; connections go to them in turn.
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
    paced: bool = False
    workers: int = 1


class Program(NamedTuple):
    """What a client executes.

    Attributes:
        before: steps that run once, first.
        steps: steps that repeat until the time or the number of steps is used up.
        seconds: duration from the first step, in the proxy's time.
    """

    circumstances: Circumstances
    steps: tuple[Step, ...]
    before: tuple[Step, ...] = ()
    seconds: int = 30
    steps_max: int = 160


def dump(program: Program) -> dict[str, Any]:
    """Return a program as a JSON value; fields with default values are left out."""
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
