# SPDX-License-Identifier: Apache-2.0
"""A real browser, and the page of a real run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "src" / "pilothouse" / "server" / "static"
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
PATIENCE_SECONDS = 60  # on a busy machine; what is awaited usually comes at once
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")

expect.set_options(timeout=1000 * PATIENCE_SECONDS)


# Playwright keeps an event loop running in this thread until it is left, in which no other test
# could run its own: so it lives for one module and not for the session.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(CHROMIUM_NAMES)} is on PATH")
    if not (STATIC / "index.html").is_file():
        pytest.fail("The page is not built. Run: make web")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=list(QUIET), timeout=1000 * PATIENCE_SECONDS
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that must stay free of script errors, broken rules and requests to elsewhere."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.set_default_timeout(1000 * PATIENCE_SECONDS)
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: _must_be_local(request.url, complaints))
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text)
            if message.type == "error" and "ERR_" not in message.text
            else None
        ),
    )
    yield page
    page.close()
    assert complaints == []


def _must_be_local(url: str, complaints: list[str]) -> None:
    if not ADDRESS.match(url):
        complaints.append(f"asked for {url}")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where ``pilothouse up`` serves its page while the tests look at it."""
    journal = tmp_path_factory.mktemp("run") / "run.db"
    command = [sys.executable, "-m", "pilothouse.cli", "up", "--port", "0", "--seed", "4"]
    command += ["--interval", "0.2", "--cycles", "9000", "--journal", str(journal)]
    run = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert run.stdout is not None
    said: list[str] = []
    for line in run.stdout:
        said.append(line)
        found = ADDRESS.search(line)
        if found:
            # Somebody has to read on, or the run would wait for room in the pipe.
            reading = threading.Thread(target=run.stdout.read, daemon=True)
            reading.start()
            yield found.group()
            break
    else:
        pytest.fail(f"pilothouse up printed no address: {''.join(said)}")
    run.terminate()
    run.wait(PATIENCE_SECONDS)
    reading.join(PATIENCE_SECONDS)
    run.stdout.close()
