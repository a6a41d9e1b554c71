"""A headless Chromium, driven over the DevTools protocol through two pipes, without another package.

`WHILST_CHROMIUM` names the program; otherwise it is the first of PROGRAMS that is installed.
"""

import base64
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

PROGRAMS = "chromium", "chromium-browser", "google-chrome", "chrome"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
TIMEOUT = 30.0  # seconds


def chromium() -> str | None:
    named = os.environ.get("WHILST_CHROMIUM")
    return named or next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Pipes:
    """JSON messages to the browser and back, each followed by a zero byte."""

    def __init__(self, folder: str, flags: Sequence[str]) -> None:
        (near, self._out), (self._in, far) = os.pipe(), os.pipe()
        # The browser uses the descriptors 3 and 4: a shell moves them there from higher numbers.
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (near, far))
        line = f'exec "$0" "$@" 3<&{read} 4>&{write}'
        self.process = subprocess.Popen(
            ["bash", "-c", line, str(chromium()), *FLAGS, *flags, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(read, write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for end in (near, far, read, write):
            os.close(end)
        self._rest = b""

    def send(self, message: dict[str, Any]) -> None:
        os.write(self._out, json.dumps(message).encode() + b"\0")

    def receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            chunk = os.read(self._in, 1 << 20)
            assert chunk, "the browser has exited"
            self._rest += chunk
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        return message

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._out)
        os.close(self._in)


class Tab:
    """One page in the browser."""

    def __init__(self, pipes: Pipes, target: str, session: str) -> None:
        self._pipes, self._target, self._session, self._number = pipes, target, session, 0
        self.errors: list[str] = []  # of the console
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.command(f"{domain}.enable")

    def command(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        number = self._number
        self._pipes.send({"id": number, "method": method, "params": parameters, "sessionId": self._session})
        while True:
            message = self._pipes.receive()
            if message.get("sessionId") != self._session:
                continue
            if message.get("id") == number:
                assert "error" not in message, f"{method}: {message['error']}"
                return message["result"]
            self._record(message)

    def _record(self, message: dict[str, Any]) -> None:
        match message.get("method"), message.get("params"):
            case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                self.errors.append(json.dumps(details))
            case "Log.entryAdded", {"entry": {"level": "error", "text": text}}:
                self.errors.append(text)

    def open(self, address: str) -> None:
        self.command("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, expression: str, timeout: float = TIMEOUT) -> Any:
        """The value of an expression, once it is true."""
        end = time.monotonic() + timeout
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < end, f"timeout: {expression}\n{self.errors}"
            time.sleep(0.02)
        return value

    def close(self) -> None:
        self.command("Target.closeTarget", targetId=self._target)

    def text(self, selector: str) -> str:
        value: str = self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
        return value

    def point(self, selector: str) -> tuple[float, float]:
        """Move the mouse to its centre."""
        node = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{node}.scrollIntoView({{block: 'nearest'}})")
        middle = "({x, y, width, height}) => [x + width / 2, y + height / 2]"
        x, y = self.evaluate(f"({middle})({node}.getBoundingClientRect())")
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, selector: str) -> None:
        x, y = self.point(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Key by key."""
        for letter in text:
            self.press("Enter", "\r") if letter == "\n" else self.press(letter, letter)

    def press(self, key: str, text: str = "") -> None:
        arrows = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
        code = {"Enter": 13, "Tab": 9, "Escape": 27, " ": 32, **arrows}.get(key, 0)
        options = {"key": key, "windowsVirtualKeyCode": code}
        self.command("Input.dispatchKeyEvent", type="keyDown", text=text, **options)
        self.command("Input.dispatchKeyEvent", type="keyUp", **options)

    def resize(self, width: int, height: int, scale: float = 1.0, mobile: bool = False) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": mobile}
        self.command("Emulation.setDeviceMetricsOverride", **size)

    def set_media(self, **features: str) -> None:
        """Such as prefers_color_scheme="dark"."""
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.command("Emulation.setEmulatedMedia", features=listed)

    def screenshot(self, path: Path, transparent: bool = False) -> None:
        if transparent:
            self.command("Emulation.setDefaultBackgroundColorOverride", color={"r": 0, "g": 0, "b": 0, "a": 0})
        path.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))


class Browser:
    def __init__(self, pipes: Pipes) -> None:
        self._pipes, self._number = pipes, 1_000_000

    def command(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._pipes.send({"id": self._number, "method": method, "params": parameters})
        while (message := self._pipes.receive()).get("id") != self._number:
            pass
        assert "error" not in message, f"{method}: {message['error']}"
        return message["result"]

    def tab(self) -> Tab:
        target = self.command("Target.createTarget", url="about:blank")["targetId"]
        session = self.command("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Tab(self._pipes, target, session)


@contextlib.contextmanager
def browser(*flags: str) -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pipes = Pipes(folder, flags)
        try:
            yield Browser(pipes)
        finally:
            pipes.close()
