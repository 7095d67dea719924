"""Which principals may read and change quotas."""

import pytest

from proxy.quota_admin.authorizer import Authorizer, Rules, own_part
from proxy.quota_admin.requester import Requester, Right, Way
from quota.admin.messages import Alteration, Op, entity_key

ALICE, ADMIN, OWNER, READER, ANONYMOUS = "User:alice", "User:admin", "User:owner", "User:reader", "User:ANONYMOUS"
UNKNOWN = "User:__unknown__/default/GSSAPI"
LISTED = Rules("list", frozenset({ADMIN}), frozenset({OWNER}), frozenset({READER}))


def requester(principal: str | None, way: Way = "kafka", right: Right | None = None) -> Requester:
    return Requester(principal, way, "127.0.0.1:5", "default", right)


@pytest.mark.parametrize("principal", [ALICE, ADMIN, ANONYMOUS, UNKNOWN, None])
@pytest.mark.parametrize("broker_allows", [None, False, True])
def test_by_default_no_client_may(principal: str | None, broker_allows: bool | None) -> None:
    """By default no principal may alter or describe quotas, whatever the broker allows."""
    authorizer = Authorizer()
    assert not authorizer.may_alter(requester(principal), broker_allows)
    assert not authorizer.may_describe(requester(principal), broker_allows)
    assert not authorizer.may_describe_own(requester(principal))


@pytest.mark.parametrize(
    ("principal", "alters", "describes"),
    [
        (ADMIN, True, True),
        (OWNER, True, True),
        (READER, False, True),
        (ALICE, False, False),
        (ANONYMOUS, False, False),
        ("user:admin", False, False),
        ("User:admin ", False, False),
        ("User:Admin", False, False),
        ("admin", False, False),
        ("", False, False),
        (UNKNOWN, False, False),
        (None, False, False),
    ],
)
def test_with_a_list_those_on_it_may(principal: str | None, alters: bool, describes: bool) -> None:
    """With a list exactly the listed principals have their rights, whatever the broker allows."""
    authorizer = Authorizer(LISTED)
    for broker_allows in (None, True):
        assert authorizer.may_alter(requester(principal), broker_allows) == alters
        assert authorizer.may_describe(requester(principal), broker_allows) == describes


def test_who_is_unknown_is_on_no_list() -> None:
    """An unknown principal has no right, even if its placeholder name is listed."""
    authorizer = Authorizer(Rules("list", frozenset({UNKNOWN}), describe_principals=frozenset({UNKNOWN})))
    assert not authorizer.may_alter(requester(UNKNOWN))
    assert not authorizer.may_describe(requester(UNKNOWN))


@pytest.mark.parametrize("principal", [ALICE, UNKNOWN, None])
def test_where_the_broker_says_only_its_yes_counts(principal: str | None) -> None:
    """With the broker as authority only its explicit permission counts, for any principal name."""
    authorizer = Authorizer(Rules("broker"))
    assert authorizer.may_alter(requester(principal), True)
    assert not authorizer.may_alter(requester(principal), False)
    assert not authorizer.may_alter(requester(principal), None)
    assert not authorizer.may_describe(requester(principal), None)


def test_a_broker_cannot_speak_for_who_never_logged_in() -> None:
    """A client that has not logged in has no right although the broker permits it."""
    assert not Authorizer(Rules("broker")).may_alter(requester(ANONYMOUS), True)


@pytest.mark.parametrize(("right", "alters", "describes"), [(None, False, False), ("read", False, True), ("write", True, True)])
def test_a_token_of_the_admin_port_gives_its_right(right: Right | None, alters: bool, describes: bool) -> None:
    """On the admin port only the token's right counts, not the list of principals."""
    for rules in (Rules(), LISTED):
        authorizer = Authorizer(rules)
        assert authorizer.may_alter(requester(ADMIN, "http", right), True) == alters
        assert authorizer.may_describe(requester(ADMIN, "http", right)) == describes


def test_a_right_of_the_admin_port_is_worth_nothing_elsewhere() -> None:
    """The right of an admin token does not apply to Kafka's API."""
    assert not Authorizer(Rules()).may_alter(requester(ALICE, "kafka", "write"))


@pytest.mark.parametrize(
    ("principal", "parts", "denied"),
    [
        (ADMIN, {"user": "admin"}, True),
        (ADMIN, {"user": "admin", "client-id": "etl"}, True),
        (ADMIN, {"user": "admin", "client-id": None}, True),
        (ADMIN, {"user": None}, False),
        (ADMIN, {"user": "alice"}, False),
        (ADMIN, {"client-id": "admin"}, False),
        (ADMIN, {"ip": "10.0.0.1"}, False),
        (OWNER, {"user": "owner"}, False),
        (ANONYMOUS, {"user": "ANONYMOUS"}, True),
        (None, {"user": "alice"}, True),
        (UNKNOWN, {"user": "alice"}, True),
        (None, {"user": None}, False),
    ],
)
def test_no_client_changes_quotas_of_its_own_name(principal: str | None, parts: dict[str, str | None], denied: bool) -> None:
    """A principal may not change its own user's quota unless it is super; an unknown principal may change no user's quota."""
    entity = tuple(sorted(parts.items()))
    assert Authorizer(LISTED).is_denied_self(requester(principal), entity) == denied
    assert not Authorizer(LISTED._replace(deny_self=False)).is_denied_self(requester(principal), entity)


RATE, PERCENT = "producer_byte_rate", "request_percentage"
Parts = dict[str, str | None]
DEFAULT_USER: Parts = {"user": None}


def denies_default(
    principal: str | None, parts: Parts, kept: list[Parts], *, keys: tuple[str, ...] = (RATE,), rules: Rules = LISTED
) -> bool:
    """Return whether a principal may not alter these keys of a default while the entities in `kept` have a Produce quota."""
    quotas = {entity_key(list(one.items())): {RATE: 1.0} for one in kept}
    alteration = Alteration(list(parts.items()), [Op(key, 2.0, remove=False) for key in keys])
    return Authorizer(rules).is_denied_default(requester(principal), alteration, quotas)


@pytest.mark.parametrize(
    ("parts", "kept", "denied"),
    [
        (DEFAULT_USER, [], True),
        (DEFAULT_USER, [DEFAULT_USER], True),
        (DEFAULT_USER, [{"user": "admin"}], False),
        (DEFAULT_USER, [{"user": "admin", "client-id": None}], False),
        (DEFAULT_USER, [{"user": None, "client-id": None}], False),
        (DEFAULT_USER, [{"user": "admin", "client-id": "etl"}], True),
        (DEFAULT_USER, [{"user": None, "client-id": "etl"}], True),
        (DEFAULT_USER, [{"user": "alice"}], True),
        (DEFAULT_USER, [{"client-id": "etl"}, {"client-id": None}], True),
        ({"user": None, "client-id": "etl"}, [], True),
        ({"user": None, "client-id": "etl"}, [{"user": "admin", "client-id": "etl"}], False),
        ({"user": None, "client-id": "etl"}, [{"user": "admin", "client-id": "web"}], True),
        ({"user": None, "client-id": "etl"}, [{"user": "admin"}], False),
        ({"user": None, "client-id": None}, [{"user": "admin", "client-id": None}], False),
        ({"user": None, "client-id": None}, [{"user": None, "client-id": "etl"}], True),
        ({"client-id": None}, [], False),
        ({"client-id": "etl"}, [], False),
        ({"ip": None}, [], False),
        ({"user": "alice"}, [], False),
    ],
)
def test_no_client_changes_a_default_that_applies_to_it(parts: Parts, kept: list[Parts], denied: bool) -> None:
    """A principal may not change a default that applies to one of its clients."""
    assert denies_default(ADMIN, parts, kept) == denied


def test_a_quota_of_ones_own_hides_the_default_of_its_key_alone() -> None:
    """A principal's own quota frees it to change the default of the same key only."""
    own: list[Parts] = [{"user": "admin"}]
    assert not denies_default(ADMIN, DEFAULT_USER, own)
    assert denies_default(ADMIN, DEFAULT_USER, own, keys=(PERCENT,))
    assert denies_default(ADMIN, DEFAULT_USER, own, keys=(RATE, PERCENT))


@pytest.mark.parametrize(("principal", "denied"), [(OWNER, False), (ANONYMOUS, False), (None, True), (UNKNOWN, True)])
def test_for_whom_defaults_hold(principal: str | None, denied: bool) -> None:
    """Super principals and ANONYMOUS may change the default user's quota; unknown principals may not."""
    assert denies_default(principal, DEFAULT_USER, []) == denied
    assert not denies_default(principal, DEFAULT_USER, [], rules=LISTED._replace(deny_self=False))


def test_the_admin_port_has_no_user() -> None:
    """A token of the admin port may change defaults."""
    alteration = Alteration([("user", None)], [Op(RATE, 2.0, remove=False)])
    assert not Authorizer(LISTED).is_denied_default(requester("Token:ops", "http", "write"), alteration, {})


@pytest.mark.parametrize(("principal", "may"), [(ALICE, True), (ANONYMOUS, False), (UNKNOWN, False), (None, False)])
def test_who_logged_in_may_see_their_own_where_that_is_set(principal: str | None, may: bool) -> None:
    """With `describe_self` a known, logged-in principal may describe its own quotas."""
    assert Authorizer(Rules(describe_self=True)).may_describe_own(requester(principal)) == may


def test_ones_own_names_no_other_client() -> None:
    """A principal's own part has its quotas and the defaults that can apply to it, and no quotas of others."""
    entities: list[dict[str, str | None]] = [
        {"user": "alice"}, {"user": "alice", "client-id": "a"}, {"user": "alice", "client-id": None}, {"user": None},
        {"user": None, "client-id": None}, {"client-id": None},
        {"user": "bob"}, {"user": "bob", "client-id": None}, {"user": None, "client-id": "b"}, {"client-id": "b"}, {"ip": None},
        {"ip": "10.0.0.1"},
    ]  # fmt: skip
    quotas = {tuple(sorted(parts.items())): {"producer_byte_rate": 1.0} for parts in entities}
    assert list(own_part(quotas, ALICE)) == [tuple(sorted(parts.items())) for parts in entities[:6]]
