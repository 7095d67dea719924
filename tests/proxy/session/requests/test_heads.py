"""Request contexts that connections share for equal headers."""

from proxy.session.header_cache import FRAME_BYTES_MAX
from proxy.session.login.identity import UNKNOWN
from proxy.session.request_context import HEADS_MAX, RequestContext
from proxy.session.requests.classifier import CLIENT_IDS_MAX, RequestClassifier
from proxy.session.rewrite import ApiVersionsCut, Rewriter
from quota.entity import DEFAULT, KafkaPrincipal
from quota.maker import NO_MAKER, Maker, maker_at
from tests.support.memory.memory_connection import ProxyFixture
from tests.support.memory.verdicts import produce_of


def new_rewriter() -> Rewriter:
    return Rewriter(None, None, ApiVersionsCut(unknown_apis_pass=False), redact_configs=False)


def heads(proxy: ProxyFixture, rewriter: Rewriter, here: Maker = NO_MAKER) -> RequestClassifier:
    """Return the classifier of one connection."""
    made = RequestClassifier(proxy.settings, rewriter, here=here)
    made.count_in(proxy.scope)
    return made


def resolved(of: RequestClassifier, frame: bytes) -> RequestContext:
    head = of.resolve(frame, 0, len(frame) - 4)
    assert head is not None
    return head


def test_equal_bytes_are_one_head(proxy: ProxyFixture) -> None:
    """Two connections of one listener share the context of equal headers."""
    rewriter = new_rewriter()
    first, second = heads(proxy, rewriter), heads(proxy, rewriter)
    assert resolved(first, produce_of(100, 1)) is resolved(second, produce_of(5_000, 2))
    assert resolved(first, produce_of(100, 1, client_id="other")) is not resolved(second, produce_of(100, 1))


def test_another_door_scope_or_principal_is_another_head(proxy: ProxyFixture) -> None:
    """Another rewriter, scope or principal has a context of its own."""
    rewriter = new_rewriter()
    first, elsewhere, moved, named = heads(proxy, rewriter), heads(proxy, new_rewriter()), heads(proxy, rewriter), heads(proxy, rewriter)
    moved.count_in(proxy.scopes.of(("other", 9)))
    named.principal = KafkaPrincipal("User", "alice")
    assert len({id(resolved(one, produce_of(100, 1))) for one in (first, elsewhere, moved, named)}) == 4
    assert resolved(named, produce_of(100, 1)).client.principal.name == "alice"


def test_an_unknown_client_from_another_address_is_another_head(proxy: ProxyFixture) -> None:
    """Unknown clients of different addresses have different contexts, and a known user has one."""
    rewriter = new_rewriter()
    here, there, again = (heads(proxy, rewriter, maker_at("edge", host)) for host in ("192.0.2.1", "192.0.2.2", "::ffff:192.0.2.1"))
    assert resolved(here, produce_of(100, 1)) is resolved(again, produce_of(100, 1)) is not resolved(there, produce_of(100, 1))
    for name, is_one in (("alice", True), (f"{UNKNOWN}/edge/GSSAPI", False)):
        here.principal = there.principal = KafkaPrincipal("User", name)
        assert (resolved(here, produce_of(100, 1)) is resolved(there, produce_of(100, 1))) is is_one


def test_the_share_is_that_of_who_sends(proxy: ProxyFixture) -> None:
    """Client-ids of an address beyond its share use one group, and those of another address have their own."""
    proxy.set_quota(produce=10.0, client_id=DEFAULT)
    proxy.scope.produce.groups_per_user_max = 2
    here, there = (heads(proxy, new_rewriter(), maker_at("edge", host)) for host in ("192.0.2.1", "192.0.2.2"))
    flood = [resolved(here, produce_of(100, 1, client_id=f"name-{number}")).client.produce(0) for number in range(5)]
    assert len({id(group) for group in flood}) == 3
    same = [resolved(there, produce_of(100, 1, client_id=f"name-{number}")).client.produce(0) for number in (0, 1, 3, 4)]
    assert same[:2] == flood[:2]
    assert len({id(group) for group in (*flood, *same)}) == 5


def test_the_rule_for_empty_client_ids_holds_at_once(proxy: ProxyFixture) -> None:
    """A change of `empty_client_id` applies to the next request."""
    one = heads(proxy, new_rewriter())
    assert resolved(one, produce_of(100, 1, client_id="")).client.client_id == DEFAULT
    proxy.settings.empty_client_id_is_default = False
    assert resolved(one, produce_of(100, 1, client_id="")).client.client_id == ""


def test_the_number_of_heads_kept_is_bounded(proxy: ProxyFixture) -> None:
    """The number of cached contexts and of client-ids per connection is bounded."""
    one = heads(proxy, new_rewriter())
    for number in range(HEADS_MAX + 10):
        resolved(one, produce_of(100, 1, client_id=str(number)))
    assert 0 < len(proxy.settings.known_heads) <= HEADS_MAX
    assert one.client_ids == tuple(str(number) for number in range(CLIENT_IDS_MAX))


def test_a_long_head_is_not_kept(proxy: ProxyFixture) -> None:
    """A header above `FRAME_BYTES_MAX` is not cached."""
    resolved(heads(proxy, new_rewriter()), produce_of(1_000, 1, client_id="x" * FRAME_BYTES_MAX))
    assert len(proxy.settings.known_heads) == 0
