"""A headless Chromium, controlled by the DevTools protocol over two pipes: it needs no driver and no package."""

from __future__ import annotations

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
PATIENCE = 30.0  # seconds, on a busy machine


def find_chromium() -> str | None:
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class Browser:
    """Commands go to the browser's file descriptor 3 and answers come from 4, as JSON that ends with a zero byte."""

    def __init__(self, chromium: str, profile: Path) -> None:
        their_in, self._out = os.pipe()
        self._in, their_out = os.pipe()

        def connect() -> None:  # by way of high numbers: 3 or 4 may be among the four pipes' ends
            high = [os.dup2(end, 210 + k) for k, end in enumerate((their_in, their_out))]
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self._process = subprocess.Popen(
            [chromium, *FLAGS, f"--user-data-dir={profile}"], preexec_fn=connect, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(their_in)
        os.close(their_out)
        self._numbers = itertools.count(1)
        self._rest = b""
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], PATIENCE)[0]:
                raise TimeoutError("chromium does not answer")
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise RuntimeError("chromium has ended")
            self._rest += chunk
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        self.call("Browser.close")
        self._process.wait(timeout=PATIENCE)
        os.close(self._in)
        os.close(self._out)


class Page:
    """One tab."""

    def __init__(self, browser: Browser, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self._browser = browser
        self._target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=self._target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.call(method, self._session, **parameters)

    def open(self, path: Path, fragment: str = "") -> Page:
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=path.as_uri() + fragment)
        self.wait(
            lambda: self.evaluate("document.readyState === 'complete' && location.protocol === 'file:'")
        )
        return self

    def evaluate(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", answer))
        return answer["result"].get("value")

    def settle(self) -> None:
        """Wait until the page is drawn; a background tab draws nothing."""
        self.call("Page.bringToFront")
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def wait(self, condition: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise TimeoutError("the page did not reach the expected state")
            time.sleep(0.02)
        return found

    def hover(self, selector: str) -> None:
        box = f"document.querySelector({json.dumps(selector)}).getBoundingClientRect()"
        x, y = self.evaluate(
            f"(({{left, top, width, height}}) => [left + width / 2, top + height / 2])({box})"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, **(text if kind == "keyDown" else {})
            )
        self.settle()

    def screenshot(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def faults(self) -> list[str]:
        """Forbidden events: an error or a warning in the console, an exception, a dialog, a request."""
        self.settle()
        own = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [fault for event in own if (fault := _fault(event["method"], event["params"]))]

    def close(self) -> None:
        self._browser.call("Target.closeTarget", targetId=self._target)


def _fault(method: str, parameters: dict[str, Any]) -> str | None:
    if method == "Runtime.exceptionThrown":
        return str(parameters["exceptionDetails"])
    if method == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning", "assert"):
        return str(parameters["args"])
    if method == "Log.entryAdded" and parameters["entry"]["level"] in ("error", "warning"):
        return str(parameters["entry"])
    if method == "Page.javascriptDialogOpening":
        return parameters["message"]
    if method == "Network.requestWillBeSent":
        url = parameters["request"]["url"]
        own = parameters.get("type") == "Document" and url.startswith(("file:", "about:"))
        return None if own or url.startswith(("data:", "blob:")) else url
    return None
