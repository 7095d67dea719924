"""Metering files name the principal that changed a quota."""

from pathlib import Path

import pyarrow.parquet as pq

from pipeline.manifest import find_manifests
from protocol.messages.client_quotas import QuotaOp, alter_request
from proxy.config.model import Metering
from tests.support.scripted.administered_gateway import Keeper
from tests.support.scripted.gateway_fixture import open_gateway
from tests.support.scripted.scripted_broker import ScriptedBroker
from tests.support.scripted.scripted_frames import produce_request

RATE = "producer_byte_rate"


async def test_at_level_off_nothing_is_written(tmp_path: Path) -> None:
    """With `level = "off"` the metering directory is not created, and requests are served."""
    metering = Metering(dir=tmp_path / "metering", level="off")
    async with ScriptedBroker() as broker, open_gateway(broker, metering=metering) as sluice:
        client = await sluice.client()
        await client.ask(produce_request(1))
    assert not Path.exists(tmp_path / "metering")


async def test_a_bound_says_who_asked_for_it(tmp_path: Path) -> None:
    """The metering rows of a bound name the principal that set it and the bound before."""
    async with ScriptedBroker() as broker, open_gateway(broker, metering=Metering(dir=tmp_path, proxy_id="edge")) as sluice:
        Keeper(sluice)
        client = await sluice.client()
        for number, rate in enumerate((1e6, 2e6)):
            await client.ask(alter_request(1, 10 + number, "admin", [((("client-id", None),), [QuotaOp(RATE, rate)])], validate_only=False))
            await client.ask(produce_request(20 + number))
    rows = [
        row
        for manifest in find_manifests(tmp_path)
        for entry in manifest.files
        if entry.table == "dim_bound"
        for row in pq.read_table(tmp_path / entry.path, partitioning=None).to_pylist()
        if row["bound"] < 1e7
    ]
    assert [(row["previous"], row["bound"], row["who"], row["rule"]) for row in rows] == [
        (None, 1e6, "ANONYMOUS", "client-id=<default>"),
        (1e6, 2e6, "ANONYMOUS", "client-id=<default>"),
    ]
