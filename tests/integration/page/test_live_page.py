"""The live page in Chromium, in front of a proxy whose clients wait. The page's own policy is in force in every test."""

import json
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from confluent_kafka import Producer
from playwright.sync_api import Browser, Page, expect

from proxy.demo.mock_cluster import MockCluster
from proxy.observe.live.files import POLICY
from tests.support.page.browser import LIMIT_MS, WatchedPage, chromium
from tests.support.patience import until_true
from tests.support.processes.sluice_process import SluiceProcess, write_quotas

pytestmark = pytest.mark.mock
READER, WRITER = "reader-0123456789", "writer-0123456789"
HOSTILE = "<img src=x onerror=alert(1)>"
VIEWS = ("waiting", "why", "connections", "changes")
ETL_BOUND = 50_000.0
RECORD = b"x" * 10_000
Open = Callable[..., WatchedPage]
expect.set_options(timeout=LIMIT_MS)


class Load:
    """Two producers beyond their quotas, from the first test to the last; the name of one is markup."""

    def __init__(self, bootstrap: str) -> None:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._produce, args=(bootstrap, name)) for name in ("etl", HOSTILE)]

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _produce(self, bootstrap: str, name: str) -> None:
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": name, "linger.ms": 0, "acks": 1, "log_level": 0}
        producer = Producer({**settings, "queue.buffering.max.messages": 40, "message.timeout.ms": 300_000})
        while not self._over.wait(0.05):
            try:
                producer.produce("page", RECORD)
            except BufferError:
                producer.poll(0.05)
        producer.purge()
        producer.flush(5)


def config_in(folder: Path, upstream: str) -> Path:
    quotas = write_quotas(
        folder / "quotas.toml",
        [{"client-id": "etl", "producer_byte_rate": ETL_BOUND}, {"client-id": "<default>", "producer_byte_rate": 40_000.0}],
    )
    for name, token in (("reader", READER), ("writer", WRITER)):
        path = folder / name
        path.touch(mode=0o600)
        path.write_text(token)
    path = folder / "sluice.toml"
    path.write_text(
        f'[upstream]\nbootstrap = "{upstream}"\n[[listener]]\naddress = "127.0.0.1:1"\n[quotas]\npath = "{quotas}"\n'
        f'[metering]\ndir = "{folder}/metering"\nproxy_id = "page"\nrotate_seconds = 5\n[audit]\nfile = "{folder}/audit.jsonl"\n'
        '[[admin.tokens]]\nname = "ro"\nfile = "reader"\nrole = "read"\n[[admin.tokens]]\nname = "ops"\nfile = "writer"\nrole = "write"\n'
    )
    return path


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("page")


@pytest.fixture
def metering(folder: Path) -> Path:
    return folder / "metering"


@pytest.fixture(scope="module")
def sluice(browser: Browser, folder: Path) -> Iterator[SluiceProcess]:
    """A proxy with tokens, an audit log and metering, whose clients wait."""
    del browser  # it starts first: without it nothing else is needed
    with MockCluster(1) as cluster:
        cluster.create_topic("page", 2)
        config = config_in(folder, cluster.bootstrap)
        with SluiceProcess(cluster.bootstrap, arguments=("--config", str(config)), name="sluice-page") as running, Load(running.bootstrap):
            yield running


@pytest.fixture
def opened(browser: Browser, sluice: SluiceProcess) -> Iterator[Open]:
    """Opens pages; each asks only its own origin, shows a token in no address, and logs no error unless the test expects some."""
    watched: list[WatchedPage] = []

    def open_page(token: str | None = READER, **settings: Any) -> WatchedPage:
        watched.append(WatchedPage(browser, f"http://127.0.0.1:{sluice.admin_port}", token=token, **settings))
        return watched[-1]

    yield open_page
    for one in watched:
        one.close(secrets=(READER, WRITER))
        assert one.errors == []


def asked(sluice: SluiceProcess, path: str, token: str = READER, body: Any = None) -> Any:
    data, headers = None, {"Authorization": f"Bearer {token}"}
    if body is not None:
        data, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
    request = urllib.request.Request(f"http://127.0.0.1:{sluice.admin_port}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - the address is that of the proxy
        return json.loads(response.read())


def row_of(page: Page, name: str) -> Any:
    return page.locator(".list-row", has=page.get_by_role("link", name=name, exact=True))


def open_etl(watched: WatchedPage) -> Page:
    page = watched.open()
    page.get_by_role("link", name="client-id=etl", exact=True).click()
    expect(page.locator(".chart .rate")).to_have_attribute("d", re.compile("M"))
    return page


def test_the_policy_is_in_force(opened: Open) -> None:
    """The page has its policy, which stops inline scripts and markup made from text."""
    watched = opened()
    response = watched.page.goto(watched.origin)
    assert response is not None
    assert response.header_value("content-security-policy") == POLICY
    expect(watched.page.locator("#link")).to_have_text("live")
    assert watched.page.evaluate(
        """() => {
            const script = document.createElement("script");
            try { script.textContent = "window.ran = true"; document.head.append(script); } catch { /* trusted types */ }
            let refused = false;
            try { document.createElement("p").innerHTML = "<b>x</b>"; } catch { refused = true; }
            return [window.ran === undefined, refused];
        }"""
    ) == [True, True]
    assert watched.errors != []  # the browser reports what it stopped
    watched.errors.clear()


def test_a_throttled_client_is_seen(opened: Open) -> None:
    """The list has the throttled client with its rate, quota, time left and throttle time; a name that is markup stays text."""
    page = opened().open()
    row = row_of(page, "client-id=etl")
    expect(row).to_have_class(re.compile("waiting"))
    expect(row.locator(".bar span")).to_have_text(re.compile(r"^[\d.]+ k?B/s of 50 kB/s$"))
    expect(row.locator(".minute")).to_have_text(re.compile(r"^[\d.]+ (ms|s)$"))
    expect(row.locator(".members")).to_have_text("1")
    expect(row_of(page, f"client-id={HOSTILE}")).to_have_count(1)
    expect(row.locator(".spark path")).to_have_attribute("d", re.compile("M"))
    assert page.locator("main img").count() == 0
    assert page.locator("body *").count() < 200


def test_the_list_is_filtered(opened: Open) -> None:
    """Client-id, user, broker and tenant select the rows; the sentence below counts them."""
    page = opened().open()
    expect(row_of(page, "client-id=etl")).to_have_count(1)
    for label, text, rows in (
        ("Client id", "ETL", 1),
        ("Client id", "none such", 0),
        ("Client id", "", 2),
        ("Tenant", "a", 0),
        ("Tenant", "", 2),
    ):
        page.get_by_label(label, exact=True).fill(text)
        expect(page.locator(".list-row")).to_have_count(rows)
    page.get_by_label("Broker").select_option("1")
    expect(page.locator(".list-row")).to_have_count(2)


def test_a_group(opened: Open) -> None:
    """A group has its chart with the window, verdicts that can be computed again, the winning level, and its members."""
    page = open_etl(opened())
    expect(page.locator(".chart .window-name")).to_have_text("window of 11 s")
    text = page.locator("code", has_text="(O - T) / T x W").first.inner_text().replace(",", "")
    found = re.search(r"\(([\d.]+) - ([\d.]+)\) / ([\d.]+) x ([\d.]+) ms = ([\d.]+) ms", text)
    assert found is not None, text
    observed, bound, again, window_ms, throttle_ms = map(float, found.groups())
    assert bound == again == ETL_BOUND
    assert abs((observed - bound) / bound * window_ms - throttle_ms) <= 1
    expect(page.locator("tr.wins")).to_have_text(re.compile("client-id=etl.*50 kB/s.*applies"))
    expect(page.get_by_role("table", name="Clients")).to_contain_text("User:ANONYMOUS")


def test_why_a_client_is_slow(opened: Open) -> None:
    """The answer is one sentence with numbers; an address has one of its own."""
    page = opened().open("#/why")
    page.get_by_label("Client id").fill("etl")
    sentence = re.compile(r"client id etl.*client-id=etl at broker 1.*[\d.]+ k?B/s of 50 kB/s")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#answer")).to_have_text(sentence)
    page.get_by_label("Client id").fill("")
    page.get_by_label("IP address").fill("127.0.0.1")
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#answer")).to_have_text(re.compile(r"^Address 127\.0\.0\.1 (opens|has opened)"))


def test_connections(opened: Open) -> None:
    """The view has listeners, closes, logins, held addresses, brokers with their throughput, and latencies."""
    page = opened().open("#/connections")
    expect(page.get_by_role("table", name="Brokers")).to_contain_text(re.compile(r"1.*[\d.]+ k?B/s.*[\d.]+ m?s"))
    expect(page.get_by_role("table", name="Listeners")).to_contain_text("default")
    expect(page.get_by_role("table", name="Latencies by API")).to_contain_text("Produce")
    expect(page.get_by_text("0 connections are held")).to_be_visible()


def test_a_reader_changes_nothing(opened: Open) -> None:
    """With a token that may only read, the page offers no form."""
    page = opened().open("#/changes")
    expect(page.get_by_role("heading", name="Read only")).to_be_visible()
    assert page.get_by_role("button").count() == 0


def test_a_quota_is_changed(opened: Open, sluice: SluiceProcess, metering: Path) -> None:
    """The page says what a quota would have meant, and then sets it: it is in force, and the history has its difference and command."""
    until_true(lambda: list(metering.rglob("manifests/**/*.json")), "a metering file", LIMIT_MS / 1_000)
    page = opened(WRITER).open("#/changes")
    page.get_by_label("Client id").fill("etl")
    page.get_by_label("Units per second (empty: delete)").fill("70000")
    form = page.get_by_role("form", name="Change a quota")
    form.get_by_role("button", name="Show what it means").click()
    expect(form.locator("#effect")).to_have_text(
        re.compile(r"^On [\d,]+ decisions of .*throttled requests, waits .* groups change\.$"), timeout=70_000
    )
    expect(form.locator("pre")).to_have_text(f"sluice quotas set --admin {opened_origin(sluice)} --client-id etl producer_byte_rate=70000")
    assert bound_of_etl(sluice) == ETL_BOUND
    form.get_by_role("button", name="Apply").click()
    expect(form).to_contain_text("in force")
    assert bound_of_etl(sluice) == 70_000.0
    first = page.get_by_role("table", name="Changes, the newest first").locator("tbody tr").first
    expect(first).to_have_text(re.compile(r"Token:ops.*client-id=etl: producer_byte_rate.*50,000 → 70,000.*producer_byte_rate=70000"))
    page.goto(f"{opened_origin(sluice)}/#/waiting")
    page.get_by_role("link", name="client-id=etl", exact=True).click()
    expect(page.get_by_text(re.compile(r"Token:ops: 50,000 → 70,000"))).to_be_visible()
    expect(page.locator("tr.wins")).to_have_text(re.compile("70 kB/s"))


def test_a_value_that_is_refused(opened: Open, sluice: SluiceProcess) -> None:
    """A value that is no number, and one that Kafka refuses, are said, and cannot be applied."""
    page = opened(WRITER).open("#/changes")
    form = page.get_by_role("form", name="Change a quota")
    page.get_by_label("Client id").fill("etl")
    for value, problem in (("fast", "is not a number"), ("-1", "producer_byte_rate")):
        page.get_by_label("Units per second (empty: delete)").fill(value)
        form.get_by_role("button", name="Show what it means").click()
        expect(form.locator(".problem")).to_contain_text(problem)
        assert form.get_by_role("button", name="Apply").count() == 0


def test_a_switch_is_changed(opened: Open, sluice: SluiceProcess) -> None:
    """A switch is set and removed in the page; a sentence says why a what-if does not apply."""
    page = opened(WRITER).open("#/changes")
    form = page.get_by_role("form", name="Change a switch")
    for mode, header in (("observe", "all: observe"), ("default", None)):
        form.get_by_label("Mode").select_option(mode)
        form.get_by_role("button", name="Show what it means").click()
        expect(form.locator(".note")).to_contain_text("what-if cannot tell")
        form.get_by_role("button", name="Apply").click()
        expect(form).to_contain_text("in force")
        switches = asked(sluice, "/admin/switches")["switches"]
        assert switches == ({} if header is None else {"all": "observe"})
        figure = page.locator("#figures div", has_text="Switches")
        expect(figure).to_have_count(0 if header is None else 1)


def test_a_group_that_is_paced(opened: Open, sluice: SluiceProcess) -> None:
    """A paced group shows its schedule in place of verdicts, and the history has the command that paced it."""
    for pacing, shown, other in (("paced", "Schedule", "Last verdicts"), (None, "Last verdicts", "Schedule")):
        asked(sluice, "/admin/pacing", WRITER, {"target": "entity:client-id=etl", "pacing": pacing})
        page = open_etl(opened())
        expect(page.get_by_role("heading", name=shown)).to_be_visible()
        expect(page.get_by_role("heading", name=other)).to_have_count(0)
        if pacing:
            expect(page.get_by_text(re.compile(r"The schedule is [\d.]+ m?s ahead of the clock: the next request passes"))).to_be_visible()
        page.goto(f"{opened_origin(sluice)}/#/changes")
        first = page.get_by_role("table", name="Changes, the newest first").locator("tbody tr").first
        expect(first).to_contain_text(f"sluice quotas pacing --admin {opened_origin(sluice)} entity:client-id=etl {pacing or 'default'}")


def test_a_wrong_token(opened: Open) -> None:
    """Without a token the page asks for one, says that an unknown one is wrong, and goes on with a right one."""
    watched = opened(None)
    page = watched.open()
    for token, problem in ((None, "only with a token"), ("wrong-token", "the token is unknown here")):
        if token is not None:
            page.get_by_label("Token of").fill(token)
            page.get_by_role("button", name="Show").click()
        expect(page.get_by_role("alert")).to_contain_text(problem)
    page.get_by_label("Token of").fill(READER)
    page.get_by_role("button", name="Show").click()
    expect(row_of(page, "client-id=etl")).to_have_count(1)
    assert page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]") == ["", 0, 1]
    assert all("403" in error for error in watched.errors)  # the browser logs each refusal
    watched.errors.clear()


def test_keys(opened: Open) -> None:
    """The list is reached and read by keys alone: arrows move from row to row, and Enter opens a group."""
    page = opened().open()
    expect(row_of(page, "client-id=etl")).to_have_count(1)
    page.locator(".list-body").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('.list-row')?.getAttribute('aria-rowindex')") == "3"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="15 minutes")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views_are_accessible(opened: Open, scheme: str) -> None:
    """axe finds nothing serious in any view, in light and in dark."""
    page = open_etl(opened(WRITER, color_scheme=scheme))
    found = _serious(page)
    for view in VIEWS:
        page.goto(f"{page.url.partition('#')[0]}#/{view}")
        page.locator("main h2").first.wait_for()
        found += _serious(page)
    assert found == []


def test_a_phone(opened: Open) -> None:
    """On the screen of a phone no view is wider than the screen."""
    page = open_etl(opened(WRITER, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True))
    for view in ("", *VIEWS):
        if view:
            page.goto(f"{page.url.partition('#')[0]}#/{view}")
            page.locator("main h2").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view


def test_a_lost_connection_is_found_again(opened: Open, sluice: SluiceProcess) -> None:
    """While the proxy is gone the page says so; when it is back, the page shows it without a reload."""
    watched = opened()
    page = watched.open()
    expect(page.locator("#link")).to_have_text("live")
    sluice.kill()
    expect(page.locator("#link")).to_have_text("connection lost, trying again")
    sluice.start()
    expect(page.locator("#link")).to_have_text("live")
    expect(row_of(page, "client-id=etl")).to_have_count(1)
    assert all("net::ERR" in error for error in watched.errors)
    watched.errors.clear()


def _serious(page: Page) -> list[str]:
    violations = Axe().run(page).response["violations"]
    return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in violations if one["impact"] in ("serious", "critical")]


def opened_origin(sluice: SluiceProcess) -> str:
    return f"http://127.0.0.1:{sluice.admin_port}"


def bound_of_etl(sluice: SluiceProcess) -> float:
    (bound,) = {
        group["bound"]
        for group in asked(sluice, "/quotas")["groups"]
        if group["tags"]["client-id"] == "etl" and group["quota_type"] == "Produce"
    }
    return float(bound)
