"""`sluice meter validate` as a command, over the union of the files of a fleet's members: its findings, its time and its memory."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from bench.metering.fleet_trace import MadeByMembers, make
from bench.pipeline.measured_command import measured_command
from bench.pipeline.validation.made_directory import known_of, made_directory


class JudgedFleet(NamedTuple):
    """One verdict on a directory of members.

    Attributes:
        missing: decisions that were not validated.
        differences: the number of divergences, with those of the rules over the fleet.
        lost_units: usage that a member recorded itself and that the verdict does not contain.
        compared: decisions that were compared with the usage of the other members.
        assumed_now: units that decisions assumed and took back.
        mib_max: the largest memory of the process.
    """

    members: int
    decisions: int
    missing: int
    differences: int
    lost_units: int
    compared: int
    lag_ms_p99: int
    assumed_now: int
    incomplete: int
    throttled: int
    seconds: float
    mib_max: int

    @property
    def is_wrong(self) -> bool:
        """Whether anything was found, lost, or left out."""
        return any((self.missing, self.differences, self.lost_units, self.incomplete, not self.compared))

    def lines(self) -> list[str]:
        """Return the lines to print."""
        rate = self.decisions / self.seconds
        return [
            f"validate as typed, {self.members} members of a fleet: {self.decisions:,} decisions ({self.throttled:,} with a wait) in "
            f"{self.seconds:.1f} s: {rate:,.0f} decisions/s; {self.mib_max:,} MiB at most",
            f"differences {self.differences:,}, decisions not judged {self.missing:,}, units lost between members {self.lost_units:,}",
            f"{self.compared:,} decisions compared with the usage of the other members, 99 % of which was known after {self.lag_ms_p99} ms",
            f"{self.assumed_now:,} units assumed and taken back",
        ]


def judged_fleet(folder: Path, events: int, members: int) -> JudgedFleet:
    """Make a directory of this many decisions, unless it exists, and validate it.

    Raises:
        RuntimeError: the command failed; the text is its output.
    """
    directory = made_directory(folder, events, members, "members", make)
    return _validate(directory, MadeByMembers(**known_of(directory)), members)


def _validate(directory: Path, made: MadeByMembers, members: int) -> JudgedFleet:
    said = measured_command(["meter", "validate", "--in", str(directory), "--format", "json"], directory.with_suffix(".out"))
    verdict: dict[str, Any] = json.loads(said.output)
    (fleet,) = verdict["fleets"]
    units = dict.fromkeys(made.units, 0)
    for one in fleet["usage"]:
        units[one["member"]] += one["units"]
    return JudgedFleet(
        members,
        made.decisions,
        made.decisions - sum(counts["decisions"] for counts in verdict["counts"].values()),
        verdict["violations"],
        sum(abs(made.units[name] - units[name]) for name in units),
        fleet["compared"],
        fleet["lag_ms_p99"],
        sum(one["assumed_now"] for one in fleet["usage"]),
        len(verdict["incomplete"]),
        made.throttled,
        said.seconds,
        said.mib_max,
    )
