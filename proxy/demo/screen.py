"""The output of the demo: redrawn in place on a terminal, otherwise a few lines."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from proxy.demo.clients.cast import BURST_SECONDS, Role
from proxy.demo.judgement.judgement import LAST_REQUEST_SPAN_RATIO_MAX, LAST_SPAN_RATIO_MAX, PACED_TIME_RATIO_MAX, Judgement
from proxy.demo.judgement.proof import Proof
from proxy.demo.proxies import FleetSeen

QUIET_LINE_SECONDS: Final = 5
BARS: Final = " ▁▂▃▄▅▆▇█"
SPARK_SECONDS: Final = 30
FIGURES_WIDTH, HELD_WIDTH = 71, 13

_BOLD, _DIM, _GREEN, _RED, _YELLOW, _PLAIN = "\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[33m", "\033[0m"
_HEAD: Final = f"  {'client':<8} {'library':<16} {'wants':>11} {'quota':>6} {'now':>6} {'10 s':>6}     second by second"


@dataclass(frozen=True)
class Row:
    """The figures of one client at one time; rates are per second."""

    role: Role
    rate: float
    span_mean: float
    per_second: Sequence[float]
    held_ms: int
    held_now: int = 0


class Screen:
    """Writes to stdout."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._drawn = 0
        self._peaks: dict[str, float] = {}

    def print_line(self, text: str = "") -> None:
        """Write a line."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def show(self, rows: Sequence[Row], elapsed_s: int, seconds: int) -> None:
        """Show the figures of all clients after `elapsed_s` of `seconds`."""
        if self.is_terminal:
            self._draw(rows, elapsed_s, seconds)
        elif elapsed_s % QUIET_LINE_SECONDS == 0 and elapsed_s:
            self.print_line(f"  {elapsed_s:3d} s  " + "   ".join(f"{row.role.name} {_rate(row.role, row.rate)}" for row in rows))

    def _draw(self, rows: Sequence[Row], elapsed_s: int, seconds: int) -> None:
        for row in rows:
            unit = row.role.unit
            self._peaks[unit.rate] = max([self._peaks.get(unit.rate, unit.rate_size / 10), *row.per_second])
        lines = [f"{_BOLD}{_HEAD}{_PLAIN}", *(self._row(row) for row in rows), f"{_DIM}  {elapsed_s} of {seconds} s{_PLAIN}"]
        up = f"\033[{self._drawn}A" if self._drawn else ""
        sys.stdout.write(up + "".join(f"\r\033[2K{line}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = len(lines)

    def _row(self, row: Row) -> str:
        role = row.role
        unit = role.unit
        quota = "none" if role.bound is None else unit.rate_of(role.bound)
        figures = f"{role.wants:>11} {quota:>6} {unit.rate_of(row.rate):>6} {unit.rate_of(row.span_mean):>6} {unit.rate:<6}"
        room = shutil.get_terminal_size().columns - FIGURES_WIDTH
        seconds = max(0, min(SPARK_SECONDS, room - HELD_WIDTH))
        bars = spark(row.per_second[-seconds:], self._peaks[unit.rate]) if seconds else ""
        held = f"  {_YELLOW}{_held(row)}{_PLAIN}" if room >= HELD_WIDTH else ""
        return f"  {role.name:<8} {role.library:<16} {figures}  {bars:<{seconds}}{held}"

    def verdict(self, judgement: Judgement) -> None:
        """Write the result of one client."""
        word = self._word(is_good=judgement.is_good)
        self.print_line(
            f"  {judgement.role.name:<8} {judged(judgement)}  {word}{'' if judgement.is_good else ': ' + '; '.join(judgement.faults)}"
        )
        if judgement.parts:
            unit = judgement.role.unit
            parts = ", ".join(f"{unit.amount_of(part)} {unit.amount} at proxy {number}" for number, part in enumerate(judgement.parts, 1))
            self.print_line(f"  {'':<8} of it {parts}")

    def fleet(self, fleet: FleetSeen) -> None:
        """Write what the members of the fleet said at the end."""
        lags = ", ".join(f"{lag_ms:.0f} ms" for lag_ms in fleet.lags_ms) or "not known"
        self.print_line(f"  {'fleet':<8} each proxy hears {min(fleet.heard)}; lag {lags}  {self._word(is_good=fleet.is_whole)}")

    def proof(self, proof: Proof) -> None:
        """Write the result of the pipeline's validation of the run."""
        self.print_line(f"  {proof.line}  {self._word(is_good=proof.is_good)}")
        for line in proof.divergences:
            self.print_line(f"         {line}")

    def _word(self, *, is_good: bool) -> str:
        word, colour = ("ok", _GREEN) if is_good else ("FAILED", _RED)
        return f"{colour}{word}{_PLAIN}" if self.is_terminal else word


def judged(judgement: Judgement) -> str:
    """Return a text with bound and measurement of one client."""
    role, unit = judgement.role, judgement.role.unit
    measured = f"measured {unit.amount_of(judgement.passed)} {unit.amount} in {judgement.elapsed_s:.1f} s"
    last = f"last 10 s {_rate(role, judgement.last_rate)}"
    if role.bound is None or judgement.allowed is None:
        return f"bound none; {measured}; {last}; {judgement.verdicts} verdicts"
    if role.quota_type == "Connection":
        verdicts = f"; {judgement.refused} refused"
    elif judgement.is_paced:
        verdicts = f"; {judgement.unseen} waits"
    else:
        unseen = f", {judgement.unseen} unseen" if judgement.unseen else ""
        verdicts = f"; {judgement.equal} of {judgement.verdicts} verdicts equal{unseen}"
    return (
        f"bound {_rate(role, role.bound)}; {measured} (allowed {unit.amount_of(judgement.allowed)}, model"
        f" {unit.amount_of(sum(judgement.predicted))}); {last} = {judgement.last_rate / role.bound:.2f} x bound{verdicts}"
    )


def _held(row: Row) -> str:
    if row.held_now:
        return f"{row.held_now} held"
    return f"held {row.held_ms / 1_000:.1f} s" if row.held_ms > 0 else ""


def introduction(brokers: int, seconds: int, proxies: int, *, paced: bool) -> list[str]:
    """Return a description of the run."""
    sluice = "Sluice, paced" if paced else "Sluice (2 workers)" if proxies == 1 else f"{proxies} Sluices, a fleet"
    window = (
        f"Kafka looks at the last 11 seconds: {BURST_SECONDS} s worth of quota may pass at once, then responses wait until it is older."
    )
    schedule = (
        "Bytes and request time pass by a schedule: one second's worth may pass at once, then each request waits for its time."
        " Nothing stops."
    )
    lines = [
        f"Sluice demo, {seconds} s: four Kafka clients -> {sluice} -> {brokers} brokers (librdkafka's mock cluster, here).",
        "Each topic is led by one broker. Quotas hold for each broker, as in Kafka, so one quota is one number here.",
        "orders and reports use bytes; clicks the time of a broker's thread, as Sluice estimates it; visitors come from one address.",
        schedule if paced else window,
    ]
    if proxies > 1:
        lines.append(
            f"orders, reports and clicks have a client at each proxy, with 1/{proxies} of the load each, and one quota; others use one."
        )
    return [*lines, ""]


def rule(proxies: int, *, paced: bool) -> str:
    """Return the conditions of "ok"."""
    burst = "1 s" if paced else f"{BURST_SECONDS} s"
    time = f" request time {PACED_TIME_RATIO_MAX} x that amount," if paced else ""
    request = "one request" if proxies == 1 else "one request at each proxy"
    return (
        f"ok = amount <= bound x (elapsed + {burst}) + {request}, last 10 s <= {LAST_SPAN_RATIO_MAX} x bound"
        f" ({LAST_REQUEST_SPAN_RATIO_MAX} for request time),{time}\n"
        "     every wait that Sluice imposed, recomputed, is the same;\n"
        "     as many connections as the model lets in, within a tenth, also in the last 10 s;\n"
        "     and `sluice meter validate` finds the same in what Sluice metered."
    )


def spark(values: Sequence[float], peak: float) -> str:
    """Return a bar character for each value; every value above 0 is visible."""
    top = len(BARS) - 1
    return "".join(BARS[0 if value <= 0 else max(1, min(top, round(value / peak * top)))] for value in values)


def _rate(role: Role, value: float) -> str:
    return f"{role.unit.rate_of(value)} {role.unit.rate}"
