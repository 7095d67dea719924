"""The routes of the live page, over loopback sockets."""

import asyncio
import re
import socket
from pathlib import Path

import pytest

from proxy.base.host_port import HostPort
from proxy.config.model import Metering
from proxy.observe.admin_http import AdminHttp
from proxy.observe.live import pages
from proxy.observe.live.files import FOLDER, POLICY
from proxy.observe.live.limits import VIEWER_BYTES_MAX, VIEWERS_MAX
from proxy.observe.live.what_if import NoWhatIfError, WhatIf
from proxy.telemetry.loop_lag import LoopLag
from quota.admin.messages import CLIENT_ID
from quota.entity import ClientQuotaEntity
from tests.support.memory.proxy_state import busy_state
from tests.support.page.live_events import read_event
from tests.support.patience import until_true
from tests.support.processes.changing_port import READER, WRITER, ChangingPort

FILES = sorted(path for path in FOLDER.rglob("*") if path.is_file())
OTHER_SITES = [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
CHANGE = {"entries": [{"entity": {CLIENT_ID: "etl"}, "ops": {"producer_byte_rate": 2_000.0}}]}


async def test_files_are_open_and_hold_no_data(tmp_path: Path) -> None:
    """Page and files need no token, have a strict policy, and do not depend on the state of the proxy."""
    async with ChangingPort(tmp_path, elsewhere=True) as port:
        for path in ("/", *(f"/ui/{file.relative_to(FOLDER)}" for file in FILES)):
            async with port.session.get(f"http://{port.address}{path}") as response:
                assert response.status == 200, path
                assert response.headers["Content-Security-Policy"] == POLICY
                assert response.headers["X-Content-Type-Options"] == "nosniff"
                assert await response.read() == (FOLDER / ("index.html" if path == "/" else path[4:])).read_bytes()


def test_files_need_nothing_inline_and_nothing_from_elsewhere() -> None:
    """No file has an inline script or style, an event handler, a way from text to markup, or an address of another host."""
    for file in FILES:
        text = file.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|<style|\sstyle=|\son\w+=\"", text
        ), file
        addresses = re.findall(r"https?://[^\s\"'`)]+", text)
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, file
    assert re.findall(r"<script(?! type=\"module\" src=\"ui/\w+\.js\"></script>)", (FOLDER / "index.html").read_text()) == []


@pytest.mark.parametrize("path", ["/ui/none.js", "/ui/..%2ffiles.py", "/ui/%2e%2e/files.py", "/ui/group?id=77", "/ui/group?id=x"])
async def test_what_does_not_exist(tmp_path: Path, path: str) -> None:
    """A file that the package does not have, and a group without such a number, are errors."""
    async with ChangingPort(tmp_path) as port:
        assert (await port.ask(path, token=READER))[0] in (400, 404)


@pytest.mark.parametrize("path", ["/ui/events", "/ui/session", "/ui/group?id=1", "/ui/points?ids=1"])
async def test_data_needs_a_token(tmp_path: Path, path: str) -> None:
    """Without a token, with an unknown one, and with one in the query there is no data."""
    async with ChangingPort(tmp_path) as port:
        assert (await port.ask(path))[0] == 403
        assert (await port.ask(path, token=READER[::-1]))[0] == 403
        assert (await port.ask(f"{path}{'&' if '?' in path else '?'}token={READER}"))[0] == 403
        assert (await port.ask(path, Cookie=f"token={READER}"))[0] == 403


@pytest.mark.parametrize(("token", "can_write"), [(READER, False), (WRITER, True)])
async def test_session(tmp_path: Path, token: str, *, can_write: bool) -> None:
    """The page learns whether the holder of the token may change quotas."""
    async with ChangingPort(tmp_path) as port:
        assert (await port.ask("/ui/session", token=token))[1]["can_write"] is can_write


async def test_without_tokens_the_page_is_read_only(tmp_path: Path) -> None:
    """Where no token is configured, this host may read, and the page offers no change."""
    async with ChangingPort(tmp_path, tokens=False) as port:
        assert await port.ask("/ui/session") == (200, {"principal": None, "can_write": False})
        assert (await port.ask("/ui/session", Host="evil.example"))[0] == 403


async def test_events(tmp_path: Path) -> None:
    """The stream begins with everything; a group of it can be opened, with its levels of precedence and the line that set it."""
    async with ChangingPort(tmp_path) as port:
        port.state.produce.limits[ClientQuotaEntity(None, "etl")] = 1_000.0
        await port.ask("/admin/quotas", CHANGE, WRITER)
        headers = {"Authorization": f"Bearer {READER}"}
        async with port.session.get(f"http://{port.address}/ui/events", headers=headers) as response:
            assert response.content_type == "text/event-stream"
            first = await read_event(response)
            assert (first.name, first.data["head"]["mode"]) == ("everything", "delay")
            number = first.data["groups"][0][0]
            page = (await port.ask(f"/ui/group?id={number}", token=READER))[1]
            (verdict,) = page["verdicts"]
            assert verdict["throttle_ms"] == (verdict["observed"] - verdict["bound"]) / verdict["bound"] * verdict["window_ms"]
            assert [level["entity"] for level in page["levels"] if level["wins"]] == [{"client-id": "etl"}]
            assert (page["set_by"]["new"], page["set_by"]["principal"]) == (2_000.0, "Token:ops")
            points = (await port.ask(f"/ui/points?ids={number},x,999", token=READER))[1]["points"]
            assert points == {str(number): [[5_000.0, 1_000.0, 0.0]]}
            assert (await read_event(response)).name == "changes"


async def test_a_token_that_is_withdrawn_ends_the_stream(tmp_path: Path) -> None:
    """A viewer whose token is not valid any more gets no further event."""
    async with ChangingPort(tmp_path) as port:
        headers = {"Authorization": f"Bearer {READER}"}
        async with port.session.get(f"http://{port.address}/ui/events", headers=headers) as response:
            await read_event(response)
            port.held.read(port.tokens[1:])
            assert b"event" not in await response.content.read()


@pytest.mark.parametrize("headers", OTHER_SITES)
async def test_events_for_another_site(tmp_path: Path, headers: dict[str, str]) -> None:
    """A web page of another origin cannot take the places of viewers."""
    async with ChangingPort(tmp_path, tokens=False) as port:
        assert (await port.ask("/ui/events", **headers))[0] == 403


async def test_too_many_viewers(tmp_path: Path) -> None:
    """Sixteen may view; a further one is refused with the reason, until one leaves."""
    async with ChangingPort(tmp_path, tokens=False) as port:
        url = f"http://{port.address}/ui/events"
        viewers = [await port.session.get(url) for _ in range(VIEWERS_MAX)]
        status, text = await port.ask("/ui/events")
        assert (status, text) == (503, "16 viewers watch already; close one of them\n")
        for viewer in viewers:
            viewer.close()


async def test_a_viewer_that_never_reads_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """A viewer whose buffers are full, and that does not read, loses its connection, and its place."""
    monkeypatch.setattr(pages, "UNREAD_S", 0.2)
    state = busy_state()
    for number in range(4_000):
        state.produce.add(client_id=f"{number:0300d}")
    admin = AdminHttp(state, HostPort("127.0.0.1", 0), lag=LoopLag())
    address = await admin.start()
    with socket.socket() as viewer:
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        viewer.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(viewer, (address.host, address.port))
        await loop.sock_sendall(viewer, b"GET /ui/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await asyncio.to_thread(until_true, lambda: state.counters.live_page_bytes >= VIEWER_BYTES_MAX, "the viewer")
        await asyncio.to_thread(until_true, lambda: state.counters.live_page_bytes < VIEWER_BYTES_MAX, "its end")
    await admin.stop()


async def test_a_what_if_needs_the_right_to_write(tmp_path: Path) -> None:
    """Only a holder of a token with the role "write" may ask; without metering files one sentence says why nothing is known."""
    async with ChangingPort(tmp_path) as port:
        assert (await port.ask("/ui/what-if", CHANGE))[0] == 403
        assert (await port.ask("/ui/what-if", CHANGE, READER))[0] == 403
        assert (await port.ask("/ui/what-if", CHANGE, WRITER, Origin="http://evil.example"))[0] == 403
        assert (await port.ask("/ui/what-if", {"entries": 7}, WRITER))[0] == 400
        status, page = await port.ask("/ui/what-if", CHANGE, WRITER)
        assert (status, page["effect"]) == (200, None)
        assert page["reason"] == "this proxy writes no metering files (metering.dir), so no earlier request is known"


async def test_a_what_if_without_decisions(tmp_path: Path) -> None:
    """Names that are not plain, files of other proxies only, and a second what-if at once are each refused in one sentence."""
    with pytest.raises(NoWhatIfError, match=r"metering\.names"):
        await WhatIf(lambda: Metering(dir=tmp_path, names="none")).effect_of({})
    other = tmp_path / "manifests/schema=1/proxy=ours-else/date=2026-01-01/hour=00"
    other.mkdir(parents=True)
    (other / "a.json").write_text("{")
    ours = WhatIf(lambda: Metering(dir=tmp_path, proxy_id="ours"))
    with pytest.raises(NoWhatIfError, match="no finished metering file"):
        await ours.effect_of({})
    both = await asyncio.gather(ours.effect_of({}), ours.effect_of({}), return_exceptions=True)
    assert sorted(str(one).partition(";")[0] for one in both)[-1] == "another what-if is running"
