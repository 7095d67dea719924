"""What the live page costs with very many groups: python -m bench.page [--groups 10000] [--changing 500] [--seconds 20]

Prints rows and elements in the document, the longest tasks of the browser while it reads the first snapshot and after that, while the list
is scrolled, and how late the proxy's event loop is with and without a viewer.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from playwright.sync_api import Page

from bench.harness.report import machine_lines
from tests.support.page.browser import WatchedPage, chromium

ROWS_GOAL, TASK_GOAL_MS, LATE_GOAL_MS = 200, 50.0, 5.0
WATCH_TASKS = """
window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((entry) => entry.duration)))
    .observe({ type: "longtask", buffered: true });
"""


def main() -> None:
    """Measure and print."""
    options = _options()
    command = [sys.executable, "-m", "bench.page.served", str(options.groups), str(options.changing)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as served:
        assert served.stdin is not None
        assert served.stdout is not None
        port = int(served.stdout.readline())

        def begin() -> Any:
            """Begin the next measurement; return the figures of the one before."""
            assert served.stdin is not None
            assert served.stdout is not None
            served.stdin.write("\n")
            served.stdin.flush()
            return json.loads(served.stdout.readline())

        with chromium() as browser:
            begin()
            idle = browser.new_page()
            idle.wait_for_timeout(1_000 * options.seconds)
            without = begin()
            watched = WatchedPage(browser, f"http://127.0.0.1:{port}", viewport={"width": 1280, "height": 800})
            watched.page.add_init_script(WATCH_TASKS)
            first_ms, later_ms, rows, elements = _viewed(watched.open(), options.seconds)
            with_viewer = begin()
        served.stdin.close()
    for line in machine_lines():
        print(line)
    print(f"- {options.groups:,} groups, {options.changing:,} of them change each second, {options.seconds} s")
    print(f"| rows in the document | {rows} | goal {ROWS_GOAL} |")
    print(f"| elements in the document | {elements} | |")
    print(f"| longest task, first snapshot | {first_ms:.0f} ms | |")
    print(f"| longest task after it | {'none of 50 ms or more' if later_ms == 0 else f'{later_ms:.0f} ms'} | goal {TASK_GOAL_MS:.0f} ms |")
    goal = f"goal p99 {LATE_GOAL_MS:.0f} ms"
    for name, late in (("without a viewer", without), ("with a viewer", with_viewer)):
        quantiles = ", ".join(f"{late[share]:.1f}" for share in ("p50", "p99", "max"))
        print(f"| loop late {name}: p50, p99, max | {quantiles} ms | {goal} |")
        print(f"| processor of the proxy {name} | {100 * late['cpu']:.1f} % | |")


def _viewed(page: Page, seconds: int) -> tuple[float, float, int, int]:
    """Return the longest task before and after the first rows, and the number of rows and elements; the list is scrolled meanwhile."""
    page.locator(".list-row").first.wait_for()
    page.wait_for_timeout(2_000)
    first_ms = page.evaluate("Math.max(0, ...window.tasks.splice(0))")
    rows = 0
    for at in range(seconds):
        page.evaluate("(at) => { document.querySelector('.list-body').scrollTop = at * 9000 % 390000; }", at)
        page.wait_for_timeout(1_000)
        rows = max(rows, page.locator(".list-row").count())
    return first_ms, page.evaluate("Math.max(0, ...window.tasks)"), rows, page.locator("body *").count()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--changing", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
