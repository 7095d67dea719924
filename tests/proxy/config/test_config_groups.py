"""`[[group]]` in sluice.toml: what is read, and one line for each problem."""

# ruff: noqa: E501 -- the lines that operators read are written here in one piece

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.config.checks.all import advice_on
from proxy.config.load import ConfigSource
from proxy.config.model import Config
from proxy.config.problem import ConfigProblems
from proxy.config.sections.groups import GROUPS_MAX, declared_groups
from quota.entity import ClientQuotaType
from quota.groups.declared_groups import Link
from tests.support.problem_lines import without_place

BASE = """
[upstream]
bootstrap = "kafka:9092"
[[listener]]
name = "edge"
address = "127.0.0.1:19092"
"""
BUDGET = "budget = { producer_byte_rate = 1000 }"


def load(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "sluice.toml"
    path.write_text(BASE + text)
    return ConfigSource(path).load()


def complaints(tmp_path: Path, text: str) -> list[str]:
    """Return the problems without the path of the file."""
    with pytest.raises(ConfigProblems) as caught:
        load(tmp_path, text)
    return without_place(caught.value.lines(), tmp_path / "sluice.toml")


def test_a_group_with_all_its_keys(tmp_path: Path) -> None:
    """Groups are read with patterns, sizes and parents in any order."""
    config = load(
        tmp_path,
        """
        [[group]]
        name = "batch"
        match = { user = "acme", client_id = ["batch-*", "job-?"], network = "10.1.0.0/16", listener = ["edge"] }
        budget = { producer_byte_rate = "1MB", consumer_byte_rate = 2000000, request_percentage = 12.5, controller_mutation_rate = 2 }
        parent = "acme"
        [[group]]
        name = "acme"
        budget = { producer_byte_rate = "5MB" }
        """,
    )
    reported = declared_groups(config.groups).explain("edge", "10.1.2.3", "acme", "job-7")
    assert reported.group == "batch"
    assert reported.chains == {
        ClientQuotaType.PRODUCE: (Link("batch", 1_000_000.0), Link("acme", 5_000_000.0)),
        ClientQuotaType.FETCH: (Link("batch", 2_000_000.0),),
        ClientQuotaType.REQUEST: (Link("batch", 12.5),),
        ClientQuotaType.CONTROLLER_MUTATION: (Link("batch", 2.0),),
    }
    assert declared_groups(config.groups).explain("edge", "10.2.2.3", "acme", "job-7").group is None


MATCH = 'match = { client_id = "*" }'


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            f"[[group]]\nname = 'a'\nweight = 2\n{MATCH}\n{BUDGET}",
            ["group[1].weight: has no effect without a parent; leave it out, or write the parent that the groups share"],
        ),
        (
            f"[[group]]\nname = 'a'\nweight = 0\n{MATCH}\n{BUDGET}",
            ["group[1].weight: 0 is not above 0; write a number above 0, such as 3"],
        ),
        (f"[[group]]\n{MATCH}\n{BUDGET}", ["group[1].name: is missing; write 1 to 64 letters, digits, dots, dashes or underscores"]),
        (
            f'[[group]]\nname = "a b"\n{MATCH}\n{BUDGET}',
            ['group[1].name: "a b" is not a name; write 1 to 64 letters, digits, dots, dashes or underscores'],
        ),
        (
            f'[[group]]\nname = "a"\n{MATCH}',
            [
                "group[1].budget: is missing; write at least one of producer_byte_rate, consumer_byte_rate, request_percentage, "
                "controller_mutation_rate, or a parent"
            ],
        ),
        (
            f'[[group]]\nname = "a"\n{BUDGET}',
            ["group[1].match: is missing, and the group is no other group's parent; write its members, or leave the group out"],
        ),
        (
            f'[[group]]\nname = "a"\nmatch = {{}}\n{BUDGET}',
            ['group[1].match: matches no client; write user, client_id, network or listener; client_id = "*" matches every client'],
        ),
        (
            f'[[group]]\nname = "a"\n{MATCH}\n{BUDGET}\n[[group]]\nname = "a"\n{MATCH}\n{BUDGET}',
            ['group[2].name: "a" is the name of group[1] too; write another name'],
        ),
        (
            f'[[group]]\nname = "acme"\n{MATCH}\n{BUDGET}\n[[group]]\nname = "b"\n{MATCH}\nparent = "acne"',
            ['group[2].parent: "acne" is no group; did you mean acme?'],
        ),
        (
            f'[[group]]\nname = "a"\n{MATCH}\n{BUDGET}\nparent = "b"\n[[group]]\nname = "b"\n{MATCH}\nparent = "a"',
            [
                "group[1].parent: the group is a part of itself: a < b < a; break the circle",
                "group[2].parent: the group is a part of itself: b < a < b; break the circle",
            ],
        ),
        (
            f'[[group]]\nname = "a"\nmatch = {{ listener = ["edge", "inside"] }}\n{BUDGET}',
            ['group[1].match.listener: "inside" is not a listener; write one of edge'],
        ),
        (
            f'[[group]]\nname = "a"\nmatch = {{ user = "x\\\\" }}\n{BUDGET}',
            [
                'group[1].match.user: "x\\" ends with a backslash; write a pattern such as "etl-*", or a list of them; * is any run of characters,'
                " ? is one"
            ],
        ),
        (
            f'[[group]]\nname = "a"\nmatch = {{ network = "10.1.0.1/16" }}\n{BUDGET}',
            [
                'group[1].match.network: "10.1.0.1/16" is an address inside 10.1.0.0/16, not a network; write a network such as "10.0.0.0/8", '
                'or a list such as ["10.0.0.0/8", "fd00::/8", "192.0.2.7"]'
            ],
        ),
        (
            f'[[group]]\nname = "a"\n{MATCH}\nbudget = {{ producer_rate = 5, request_percentage = 0 }}',
            [
                "group[1].budget.producer_rate: is not a setting; did you mean producer_byte_rate?",
                "group[1].budget.request_percentage: 0 is not above 0; write a number above 0, such as 50.0",
            ],
        ),
    ],
)
def test_one_clear_line_for_each_problem(tmp_path: Path, text: str, lines: list[str]) -> None:
    """Each problem of a group is one line with its key and what to write."""
    assert complaints(tmp_path, text) == lines


def test_depth_and_number_have_a_limit(tmp_path: Path) -> None:
    """More than 8 levels of groups, or more than `GROUPS_MAX` groups, are refused."""
    deep = "".join(f'[[group]]\nname = "g{at}"\n{MATCH}\n{BUDGET}\n' + (f'parent = "g{at - 1}"\n' if at else "") for at in range(9))
    assert complaints(tmp_path, deep) == ["group[9].parent: there are 8 groups above; write at most 7"]
    many = "".join(f'[[group]]\nname = "g{at}"\n{MATCH}\n{BUDGET}\n' for at in range(GROUPS_MAX + 1))
    assert complaints(tmp_path, many) == ["group: there are 1001 groups, at most 1000 are taken; write patterns that take in more clients"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["a", "b", "edge", "10.0.0.0/8", "*", "", "\\"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["user", "client_id", "network", "listener", "producer_byte_rate", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
GROUPS = st.lists(st.dictionaries(st.sampled_from(["name", "match", "budget", "parent", "x"]), VALUES, max_size=4), max_size=4)


@given(GROUPS)
def test_any_values_are_groups_or_problems(groups: list[dict[str, object]]) -> None:
    """Any values give usable groups or one-line problems."""
    from proxy.config.checks.all import check_together
    from proxy.config.toml_reader import Place, read_values

    place = Place("sluice.toml", "", [], {})
    listener = {"name": "edge", "address": "127.0.0.1:9092"}
    values = read_values(Config, {"upstream": {"bootstrap": "kafka:9092"}, "listener": [listener], "group": groups}, place)
    check_together(values, place)
    if not place.problems:
        declared_groups(values.get("groups", ())).explain("edge", "10.0.0.1", "a", "b")


def _group(name: str, match: str) -> str:
    return f'[[group]]\nname = "{name}"\nmatch = {{ {match} }}\n{BUDGET}\n'


@pytest.mark.parametrize(
    ("first", "second", "has_members"),
    [
        ('client_id = "*"', 'user = "acme"', False),
        ('user = "acme"', 'client_id = "*"', True),
        ('user = "acme*"', 'user = ["acme-a", "acme-b-*"], client_id = "x"', False),
        ('user = "acme*"', 'user = ["acme-a", "other"]', True),
        ('network = "10.0.0.0/8"', 'network = ["10.1.0.0/16", "10.2.3.4"]', False),
        ('network = "10.1.0.0/16"', 'network = "10.0.0.0/8"', True),
        ('network = "10.0.0.0/8"', 'network = "fd00::/8"', True),
        ('listener = "edge"', 'listener = "edge", user = "acme"', False),
        ('listener = "edge", user = "acme"', 'listener = "edge"', True),
    ],
)
def test_a_group_behind_one_that_takes_all_its_clients(tmp_path: Path, first: str, second: str, has_members: bool) -> None:
    """A group whose clients are all in an earlier group is warned of, with both names."""
    lines = [line for line in advice_on(load(tmp_path, _group("one", first) + _group("two", second))) if "no members" in line]
    expected = 'group "two" has no members: each client that it matches is in group "one" before it; write it above "one"'
    assert lines == ([] if has_members else [expected])


WEIGHTED = f"[[group]]\nname = 'all'\n{BUDGET}\n[[group]]\nname = 'a'\nparent = 'all'\nweight = 3\n{MATCH}\n"


@pytest.mark.parametrize("fleet", ["", '[fleet]\nname = "f"\nsecret_file = "secret"\n'], ids=["alone", "fleet"])
def test_weights_hold_over_workers_and_fleets(tmp_path: Path, fleet: str) -> None:
    """A weight may be given with workers, and in a fleet."""
    (tmp_path / "secret").write_text("x" * 40)
    (tmp_path / "secret").chmod(0o600)
    path = tmp_path / "sluice.toml"
    path.write_text(f"workers = 2\n{BASE}{WEIGHTED}{fleet}")
    assert [group.weight for group in ConfigSource(path).load().groups] == [1, 3]
