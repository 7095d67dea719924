"""Row G3: a reload of a broken configuration changes nothing and is counted as rejected."""

import asyncio
from pathlib import Path

import pytest

from proxy.config.load import ConfigSource
from proxy.config.sections.admin import Admin
from tests.support.frames.kafka_frames import throttle_ms
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import produce_of_size

VERSION = 7

BROKEN_VALUES = [
    "mode = 1",
    'mode = "harsh"',
    "delay_max_ms = -1",
    "delay_max_ms = 5001",
    'delay_max_ms = "long"',
    "delay_max_ms = 1.5",
    "delay_max_ms = true",
    'scope = "world"',
    "scope = []",
    "unheard_of = 1",
]
BROKEN_TEXTS = [
    "",
    "\0",
    "[",
    "= 1",
    "[upstream]",
    "[upstream]\nbootstrap = 7",
    "[upstream]\nbootstrap = []",
    '[upstream]\nbootstrap = ["no port"]',
    '[upstream]\nbootstrap = ["h:0"]',
    '[upstream]\nbootstrap = ["h:65536"]',
    "[[listener]]",
    "[listener]\naddress = 1",
    "not toml at all",
    "[unknown]\nkey = 1",
    "a = 1\na = 2",
]
BROKEN_TABLES = [
    'sidecar = "yes"',
    'empty_client_id = "maybe"',
    'unknown_apis = "open"',
    'broker_configs = "show"',
    "[connections]\nmax_connections = 0",
    "[connections]\nmax_connections = -1",
    "[limits]\nidle_ms = 'soon'",
    "[limits]\nrequest_frame_bytes_max = 9999999999999",
    "[limits]\nnothing = 1",
    "[callback]",
    '[callback]\nclass = "no colon"',
    '[callback]\nclass = "no.such.module:Class"',
    '[callback]\nclass = "json:NoSuchClass"',
    '[callback]\nclass = "json:dumps"',
    '[quotas]\nstore = "papyrus"',
    '[quotas]\npath = "absent.toml"',
    "[quotas]\nproducer_default = -1",
    "[quotas]\nproducer_default = nan",
    '[quotas]\nproduce = "on"',
    '[log]\nlevel = "loud"',
    "[admin]\naddress = 5",
    "[metering]\ndir = 1",
    '[quota_admin]\nprincipals = ["User:a"]',
    "[limits]\nmax_connections = 5",
    "profile = true",
]


def working(port: int, upstream: int, quotas: Path) -> str:
    """Return a valid configuration."""
    return (
        f'upstream = {{ bootstrap = ["127.0.0.1:{upstream}"] }}\n[[listener]]\naddress = "127.0.0.1:{port}"\n'
        f'[enforcement]\nmode = "mute"\n[quotas]\npath = "{quotas}"\n'
    )


@pytest.mark.timeout(120)
async def test_g03_fifty_broken_files(tmp_path: Path) -> None:
    """Each broken configuration is rejected as a whole and counted, quotas and connections stay, and a valid one is loaded afterwards."""
    quotas = tmp_path / "quotas.toml"
    quotas.write_text('[[quota]]\nclient-id = "<default>"\nproducer_byte_rate = 1000\n')
    path = tmp_path / "sluice.toml"
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", quotas_file=quotas) as sluice:
        right = working(sluice.port, broker.port, quotas)
        head, _, _ = right.partition("[enforcement]")
        broken = [f"{head}[enforcement]\n{line}\n" for line in BROKEN_VALUES] + BROKEN_TEXTS
        broken += [
            table + "\n" + right if not table.startswith("[") else right.replace("[quotas]", "[unused]") + table for table in BROKEN_TABLES
        ]
        assert len(broken) == 50
        sluice.source.load = lambda: ConfigSource(path).load()  # type: ignore[method-assign]
        client = await sluice.client()
        assert throttle_ms(await client.ask(produce_of_size(9_004, 1, version=VERSION)), 0, VERSION) == 0
        config = sluice.app.config
        for number, text in enumerate(broken, 1):
            path.write_text(text)
            assert await asyncio.wait_for(sluice.app.reload(), 30) is False, text
            assert sluice.counters.config_reloads_rejected == number
        assert sluice.counters.config_reloads_succeeded == 0
        assert sluice.app.config is config
        assert throttle_ms(await client.ask(produce_of_size(9_004, 2, version=VERSION)), 0, VERSION) > 5_000
        assert sluice.closes == {}
        path.write_text(right)
        assert await sluice.app.reload()
        assert sluice.counters.config_reloads_succeeded == 1
        assert sluice.closes == {}


BROKEN_QUOTAS = [
    "[",
    "[[quota]]",
    '[[quota]]\nclient-id = "a"',
    '[[quota]]\nclient-id = "a"\nproducer_byte_rate = 0',
    '[[quota]]\nclient-id = "a"\nproducer_byte_rate = -1',
    '[[quota]]\nclient-id = "a"\nproducer_byte_rate = nan',
    '[[quota]]\nclient-id = "a"\nproducer_byte_rate = inf',
    '[[quota]]\nclient-id = "a"\nproducer_byte_rate = "much"',
    '[[quota]]\nclient-id = "a"\nproducer_byte_rate = true',
    "[[quota]]\nclient-id = 5\nproducer_byte_rate = 1",
    '[[quota]]\nclient-id = "a"\nsome_byte_rate = 1',
    '[[quota]]\nclient-id = "a"\nproducer_byte_rate = 1\n[[quota]]\nclient-id = "a"\nproducer_byte_rate = 2',
]


@pytest.mark.parametrize("text", BROKEN_QUOTAS)
async def test_g03_a_broken_quota_file(tmp_path: Path, text: str) -> None:
    """When the quota file is broken or missing, the last valid quotas hold for old and new connections, and readiness only degrades.

    With `admin.strict_readiness` it fails.
    """
    strict = text == BROKEN_QUOTAS[0]
    admin = Admin(strict_readiness=strict)
    quotas = tmp_path / "quotas.toml"
    quotas.write_text('[[quota]]\nclient-id = "<default>"\nproducer_byte_rate = 1000\n')
    async with ScriptedBroker() as broker, open_gateway(broker, mode="mute", quotas_file=quotas, admin=admin) as sluice:
        client = await sluice.client()
        assert throttle_ms(await client.ask(produce_of_size(9_004, 1, version=VERSION)), 0, VERSION) == 0
        quotas.write_text(text)
        assert await sluice.app.reload() is False
        assert sluice.counters.config_reloads_rejected == 1
        source = next(check for check in sluice.app.state.readiness() if check.name == "quota_source")
        assert (source.ok, source.required) == (False, strict)
        assert throttle_ms(await client.ask(produce_of_size(9_004, 2, version=VERSION)), 0, VERSION) > 5_000
        quotas.unlink()
        await sluice.app.reload()
        other = await sluice.client()
        assert throttle_ms(await other.ask(produce_of_size(1_004, 1, version=VERSION)), 0, VERSION) > 5_000
        assert sluice.closes == {}
