"""Declared groups on a running proxy: a reload changes the groups of open connections."""

from proxy.base.networks import networks_of
from proxy.config.sections.groups import Group, GroupBudget, GroupMatch
from proxy.observe.snapshot import take_snapshot
from quota.groups.declared_groups import GROUP_TAG
from quota.groups.pattern import Pattern
from tests.support.scripted.gateway_fixture import RunningGateway, open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import correlation_id_of, produce_of_size
from tests.support.scripted.scripted_sockets import HOST, until

LARGE, SMALL = GroupBudget(producer_byte_rate=10_000_000), GroupBudget(producer_byte_rate=1_000)
EVERYBODY = GroupMatch(client_id=(Pattern("*"),))


def waiting(sluice: RunningGateway) -> bool:
    return any(one.session.responses.held.until_ms for one in sluice.connections)


async def test_a_reload_changes_groups_under_living_connections() -> None:
    """A changed budget applies to the next request of an open connection, and a group keeps what it has recorded."""
    groups = (Group(name="saas", budget=LARGE), Group(name="all", match=EVERYBODY, parent="saas", budget=LARGE))
    async with ScriptedBroker() as broker, open_gateway(broker, groups=groups) as sluice:
        client = await sluice.client()
        for number in range(1, 4):
            assert correlation_id_of(await client.ask(produce_of_size(70_000, number))) == number
        assert await sluice.reload(groups=(Group(name="saas", budget=SMALL), groups[1]))
        await client.send(produce_of_size(70_000, 4))
        await until(lambda: waiting(sluice))
        views = {view.group.tags[GROUP_TAG]: view for view in take_snapshot(sluice.app.state).groups if GROUP_TAG in view.group.tags}
        assert {name: view.group.recorded_total for name, view in views.items()} == {"saas": 4 * 69_996, "all": 4 * 69_996}
        assert [verdict.bound for verdict in views["saas"].group.verdicts] == [1_000.0]
        assert (views["saas"].rule, views["all"].group.parent) == ("declared-group=saas", views["saas"].group)
        assert await sluice.reload(groups=())
        sluice.app.apply_switches({"all": "off"})  # a new quota does not release a held response, a switch does
        assert correlation_id_of(await client.read_frame()) == 4
        sluice.app.apply_switches({})
        for number in range(5, 8):
            assert correlation_id_of(await client.ask(produce_of_size(70_000, number))) == number
        assert sluice.closes == {}


async def test_the_network_of_a_living_connection() -> None:
    """A reload assigns open connections to new groups by listener and address."""
    inside = Group(name="inside", match=GroupMatch(network=networks_of(["127.0.0.2"]), listener=("test",)), budget=SMALL)
    async with ScriptedBroker() as broker, open_gateway(broker) as sluice:
        there, elsewhere = await sluice.client(source="127.0.0.2"), await sluice.client(source=HOST)
        for client in (there, elsewhere):
            assert correlation_id_of(await client.ask(produce_of_size(70_000, 1))) == 1
        assert await sluice.reload(groups=(inside,))
        assert correlation_id_of(await elsewhere.ask(produce_of_size(70_000, 2))) == 2
        await there.send(produce_of_size(70_000, 2))
        await until(lambda: waiting(sluice))
        assert await sluice.reload(groups=(Group(name="inside", match=GroupMatch(listener=("test",)), budget=LARGE),))
        sluice.app.apply_switches({"all": "observe"})
        assert correlation_id_of(await there.read_frame()) == 2
