"""The queries of the board and of the rules, in a form in which Prometheus answers each of them while nothing is wrong."""

import functools
import json
import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import yaml

from tests.support.places import ROOT

RULES: Final = ROOT / "deploy/prometheus/sluice.rules.yml"
BOARD: Final = ROOT / "deploy/grafana/sluice.json"
INTERVAL: Final = "1m"
"""In the place of Grafana's `$__rate_interval`."""
_STRING: Final = r'"[^"]*"'
_COMPARED: Final = re.compile(rf"(\{{[^}}]*\}}|{_STRING})|(==|!=|<=|>=|<|>)(?! bool)")


class Query(NamedTuple):
    """A query and its place."""

    place: str
    text: str


@functools.cache
def rules() -> list[dict[str, Any]]:
    """Return every rule of the file."""
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries_of_rules() -> Iterator[Query]:
    """Yield the query of each rule: that of an alert has a value also while it does not fire."""
    for rule in rules():
        if "alert" in rule:
            yield Query(rule["alert"], always_answered(rule["expr"]))
        else:
            yield Query(rule["record"], rule["expr"])
            yield Query(f"recorded {rule['record']}", rule["record"])


def always_answered(alert: str) -> str:
    """Return an alert's query with each comparison as 0 or 1, and with the metric in the place of its absence."""
    absent = re.fullmatch(r"absent\((.*)\)", alert)
    return absent[1] if absent else _COMPARED.sub(lambda found: found[1] or f"{found[2]} bool", alert)


@functools.cache
def board() -> dict[str, Any]:
    """Return the board."""
    found: dict[str, Any] = json.loads(BOARD.read_text())
    return found


def queries_of_board() -> Iterator[Query]:
    """Yield each query of each panel, and of each variable, with all values of the variables."""
    for panel in board()["panels"]:
        for target in panel.get("targets", ()):
            yield Query(f"{panel['title']} {target['refId']}", filled(target["expr"]))


def queries_of_variables() -> Iterator[Query]:
    """Yield the metric of each variable, and its label as the place."""
    for variable in board()["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"])
            assert found is not None, variable["definition"]
            yield Query(found[2], filled(found[1]))


def filled(text: str) -> str:
    """Return a query of the board with values in the place of variables."""
    text = text.replace("$__rate_interval", INTERVAL)
    for variable in board()["templating"]["list"]:
        text = re.sub(rf"\${variable['name']}\b", ".*", text)
    assert "$" not in text, f"a variable that the board does not have: {text}"
    return text
