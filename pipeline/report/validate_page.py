"""The report of a validation: the verdict, its scope, and the divergences with the samples that prove them."""

from html import escape
from typing import Final

from pipeline.report.page import Figure, Page, Section, draw_page, draw_table
from pipeline.text import human_ms
from pipeline.validation.against_broker import HEADER, cells
from pipeline.validation.divergence import Divergence
from pipeline.validation.text import other_looks
from pipeline.validation.verdict import Verdict


def draw_verdict(verdict: Verdict, max_violations: int) -> str:
    """Return the report as HTML.

    Args:
        verdict: the verdict.
        max_violations: number of groups to show the first divergence of.
    """
    page = Page("All throttle times verified" if not verdict.violations else "Divergent throttle times", _about(verdict))
    page.figures = [
        _verdict(verdict),
        Figure(f"{verdict.decisions:,}", "recomputed decisions"),
        Figure(f"{verdict.groups:,}", "quota groups"),
        Figure(f"{verdict.coverage_percent:.4g} %", "coverage", "good" if verdict.coverage_percent >= 100 else "bad"),
        Figure(f"{verdict.dropped:,}", "decisions that were not written", "bad" if verdict.dropped else "plain"),
    ]
    if verdict.observed.decisions:
        page.figures.append(
            Figure(human_ms(verdict.observed.ms), f"of waits in {verdict.observed.decisions:,} decisions, which were only observed")
        )
    page.sections.append(Section("Recomputed decisions", _JUDGED, [_counts(verdict)]))
    if verdict.violations:
        shown = verdict.divergences(max_violations)
        page.sections.append(Section("The first divergence of each group", _kinds(verdict), [draw_divergence(one) for one in shown]))
    looks = list(other_looks(verdict))
    if looks:
        page.sections.append(Section("Other checks", _OTHERWISE, [draw_table(("check", "result"), looks)]))
    if verdict.against_broker is not None:
        explanation = _AGAINST_BROKER if verdict.against_broker else "Neither the brokers nor Sluice throttled any response."
        page.sections.append(
            Section("Against the brokers", explanation, [draw_table(HEADER, [cells(one) for one in verdict.against_broker])])
        )
    if verdict.incomplete:
        lines = "".join(f"<p>{escape(line)}</p>\n" for line in verdict.incomplete)
        page.sections.append(Section("Missing data", "", [lines]))
    page.sections.append(Section("Files", _FILES, [_manifests(verdict)]))
    page.foot = "Made by sluice meter validate."
    return draw_page(page)


def _verdict(verdict: Verdict) -> Figure:
    if verdict.violations:
        return Figure(f"{verdict.violations:,}", "divergences", "bad")
    return Figure(verdict.word, " and ".join(verdict.objections) or "verdict", "good" if verdict.holds else "bad")


_JUDGED: Final = (
    "Each decision was recomputed from the events in the files: live samples, their sum, window, rate and throttle time;"
    " for a controller mutation, the balance of its token bucket. There is no tolerance."
)
_OTHERWISE: Final = "Long run: rates over a minute and more, compared with the maximum of Kafka's algorithm."
_AGAINST_BROKER: Final = (
    "Compares throttle times of brokers, which enforce the quotas, with those of Sluice for the same responses."
    " Median: Sluice's minus the broker's; p95"
    " and longest: absolute difference. Alike: a difference of at most a sample's length, or a tenth of the longer time."
    " Fetches are not compared, since a broker also counts data that it then withholds."
)
_FILES: Final = "The verdict can be recomputed from the files of these manifests."


def _about(verdict: Verdict) -> str:
    if verdict.violations:
        return "Later divergences of a group are counted and not shown, since one lost record changes all later results."
    return "Every throttle time equals the recomputed one, to the millisecond."


def _counts(verdict: Verdict) -> str:
    header = ("quota type", "decisions", "units", "throttled", "waits")
    rows = (
        (name, f"{count['decisions']:,}", f"{count['units']:,}", f"{count['throttled']:,}", human_ms(count["throttle_ms"]))
        for name, count in sorted(verdict.counts.items())
    )
    return draw_table(header, rows)


def _kinds(verdict: Verdict) -> str:
    return "In all: " + ", ".join(f"{kind} {number:,}" for kind, number in sorted(verdict.kinds().items())) + "."


def draw_divergence(divergence: Divergence) -> str:
    """Return one divergence as HTML; the samples that prove it are in a collapsed section."""
    finding = divergence.finding
    head = f"{finding.kind} {divergence.key[0]} {divergence.key[1]}: {divergence.place}"
    evidence = "".join(f"<li>{escape(line)}</li>" for line in finding.evidence)
    proof = f"<details><summary>the samples that prove it</summary><ul>{evidence}</ul></details>" if evidence else ""
    text = f"{finding.what}: expected {finding.expected}, recorded {finding.recorded}"
    return f"<p><b>{escape(head)}</b></p>\n<p>{escape(text)}</p>\n{proof}\n"


def _manifests(verdict: Verdict) -> str:
    table = draw_table(("manifest", "SHA-256"), sorted(verdict.manifests.items()))
    return f"<details><summary>{len(verdict.manifests)} manifests</summary>{table}</details>\n"
