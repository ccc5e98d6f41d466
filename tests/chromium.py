"""A headless Chromium, driven by its own protocol over two pipes, so that no other package is needed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
)
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--remote-debugging-pipe", "--hide-scrollbars",
)  # fmt: skip
Json = dict[str, Any]  # Any: nested JSON


class Tab:
    """One page: what is asked of it and what it told meanwhile."""

    def __init__(self, out: int, into: int) -> None:
        self._out, self._in, self._rest, self._number = out, into, b"", 0
        self.told: list[Json] = []
        self._session = ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: object) -> Json:
        """The answer to a command of the protocol."""
        self._number += 1
        asked: Json = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._out, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                found: Json = answer["result"]
                return found
            self.told.append(answer)

    def _next(self) -> Json:
        while b"\0" not in self._rest:
            part = os.read(self._in, 1 << 20)
            assert part, "the browser is gone"
            self._rest += part
        message, _, self._rest = self._rest.partition(b"\0")
        found: Json = json.loads(message)
        return found

    def open(self, path: Path) -> None:
        """Load a file, and wait until it is."""
        self.told.clear()
        self.ask("Page.navigate", url=path.as_uri())
        while not any(one.get("method") == "Page.loadEventFired" for one in self.told):
            self.told.append(self._next())

    def value(self, script: str) -> Any:  # Any: what the script gives
        """What JavaScript in the page comes to."""
        done = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def look(self, width: int, theme: str) -> None:
        """Set the width in pixels and the theme."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])

    def press(self, key: str) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13}[key]
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def said(self, *methods: str) -> list[Json]:
        """What the page told of these kinds since it was opened."""
        return [one["params"] for one in self.told if one.get("method") in methods]


@contextlib.contextmanager
def tab() -> Iterator[Tab]:
    """A page of a browser of its own, which ends with it."""
    to_browser, from_browser = os.pipe(), os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        # The protocol is spoken on the descriptors 3 and 4 of the browser.
        command = f'exec "$0" "$@" 3<&{to_browser[0]} 4>&{from_browser[1]}'
        browser = subprocess.Popen(
            ["bash", "-c", command, PROGRAM, *OPTIONS, f"--user-data-dir={profile}"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, pass_fds=(to_browser[0], from_browser[1]),
        )  # fmt: skip
        os.close(to_browser[0])
        os.close(from_browser[1])
        try:
            yield Tab(to_browser[1], from_browser[0])
        finally:
            browser.terminate()
            try:
                browser.wait(10)
            except subprocess.TimeoutExpired:
                browser.kill()
                browser.wait()
            os.close(to_browser[1])
            os.close(from_browser[0])
