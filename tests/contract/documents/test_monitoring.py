"""The board and the rules name metrics that Sluice exports, and the page about them names every alert."""

import re
import subprocess

import pytest
import yaml

from tests.contract.documents.test_documented import METRICS, rows
from tests.support.monitoring.queries import Query, always_answered, board, queries_of_board, queries_of_rules, rules
from tests.support.places import ROOT

EXPORTED = {name for heading in ("Quotas", "The process", "Workers", "Fleet") for name in rows(METRICS, heading)}
PAGE = (ROOT / "docs/how-to/monitoring.md").read_text()
SEVERITIES = {"critical", "warning", "info"}
QUERIES = [*queries_of_board(), *queries_of_rules()]


def unknown_metrics(text: str) -> set[str]:
    """Return the metrics of a query that neither Sluice exports nor a rule records."""
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    found = set(re.findall(r"(?<![\w:$])(?:\w+:)?(?:kafka|process|python)_\w+(?::\w+)?", text)) - recorded
    return {name for name in found if re.sub(r"_(?:bucket|sum|count)$", "", name) not in EXPORTED}


def test_every_metric_of_board_and_rules_is_exported() -> None:
    """Each metric in a query is exported by Sluice, or recorded by a rule."""
    assert {query.place: wrong for query in QUERIES if (wrong := unknown_metrics(query.text))} == {}


def test_an_unknown_metric_is_found() -> None:
    """`unknown_metrics` returns a metric that does not exist, and no bucket of a histogram."""
    text = "rate(kafka_sluice_request_latency_seconds_bucket[5m]) / kafka_sluice_no_such_total > job:kafka_no:rate5m"
    assert unknown_metrics(text) == {"kafka_sluice_no_such_total", "job:kafka_no:rate5m"}


def test_each_alert_says_what_is_wrong() -> None:
    """Each alert has a severity, and a summary and a description that are sentences."""
    for rule in rules():
        if "alert" in rule:
            assert rule["labels"]["severity"] in SEVERITIES, rule["alert"]
            assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
            assert rule["annotations"]["description"].endswith("."), rule["alert"]


def test_the_page_says_what_to_do_for_each_alert() -> None:
    """Each alert is in one row of the table of docs/how-to/monitoring.md, and each row names alerts that exist."""
    named = re.findall(r"`(Sluice\w+)`", "".join(re.findall(r"^\| (`Sluice[^|]*)\|", PAGE, re.MULTILINE)))
    assert sorted(named) == sorted(rule["alert"] for rule in rules() if "alert" in rule)


def test_the_documented_command_makes_an_object_of_the_rules() -> None:
    """What the page about Kubernetes sends to kubectl is a PrometheusRule with all groups."""
    page = (ROOT / "docs/how-to/kubernetes.md").read_text()
    (command,) = re.findall(r"^(\(printf .*PrometheusRule.*\)) \| kubectl", page, re.MULTILINE)
    made = yaml.safe_load(subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=True).stdout)
    assert made["kind"] == "PrometheusRule"
    assert [rule for group in made["spec"]["groups"] for rule in group["rules"]] == rules()


def test_names_are_used_once() -> None:
    """No two rules, and no two panels, have the same name; panels do not overlap."""
    names = [rule.get("alert") or rule["record"] for rule in rules()]
    titles = [panel["title"] for panel in board()["panels"]]
    assert len(set(names)) == len(names)
    assert len(set(titles)) == len(titles)
    cells = [
        (x, y)
        for panel in board()["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_the_board_has_its_four_parts() -> None:
    """The rows of the board are overview, tenant, broker and proxy."""
    titles = [panel["title"] for panel in board()["panels"] if panel["type"] == "row"]
    assert [title.partition(":")[0] for title in titles] == ["Overview", "Tenant", "Broker", "Proxy"]


@pytest.mark.parametrize(
    ("alert", "answered"),
    [
        ('up{job="sluice"} == 0', 'up{job="sluice"} == bool 0'),
        ('a{check=~"x|y"} >= 0.5', 'a{check=~"x|y"} >= bool 0.5'),
        ("absent(a)", "a"),
        ("a > 0 or (b > 0 unless b offset 15m)", "a > bool 0 or (b > bool 0 unless b offset 15m)"),
    ],
)
def test_alerts_become_queries_with_an_answer(alert: str, answered: str) -> None:
    """`always_answered` replaces comparisons outside of label matchers."""
    assert always_answered(alert) == answered


def test_queries_are_read() -> None:
    """Board and rules have queries, each with a place."""
    assert all(isinstance(query, Query) and query.place and query.text for query in QUERIES)
    assert len(QUERIES) > 100
