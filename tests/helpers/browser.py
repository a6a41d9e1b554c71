"""A headless Chromium for tests of the page, driven over its own protocol through two pipes: no package is needed.

`WHILST_CHROMIUM` names the program; without it the first of PROGRAMS that is installed.
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
from collections.abc import Callable, Iterator
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
PATIENCE = 30.0  # seconds: a shared machine is slow at times


def chromium() -> str | None:
    """The program, if there is one."""
    named = os.environ.get("WHILST_CHROMIUM")
    return named or next((path for name in PROGRAMS if (path := shutil.which(name))), None)


class Pipes:
    """Messages to the browser and back: JSON, each with a zero byte after it."""

    def __init__(self, folder: str) -> None:
        (near, self._out), (self._in, far) = os.pipe(), os.pipe()
        # The browser wants the numbers 3 and 4, which Python cannot promise; a shell can, from numbers above them.
        read, write = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (near, far))
        line = f'exec "$0" "$@" 3<&{read} 4>&{write}'
        self.process = subprocess.Popen(
            ["bash", "-c", line, str(chromium()), *FLAGS, f"--user-data-dir={folder}", "about:blank"],
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
            assert chunk, "the browser has ended"
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
        self.complaints: list[str] = []  # what the page's console said
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
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"), message.get("params"):
            case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                self.complaints.append(json.dumps(details))
            case "Log.entryAdded", {"entry": {"level": "error", "text": text}}:
                self.complaints.append(text)

    def open(self, address: str) -> None:
        self.command("Page.navigate", url=address)
        self.wait("document.readyState === 'complete'")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.command("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def wait(self, expression: str, patience: float = PATIENCE) -> Any:
        """Until an expression is true; its value."""
        end = time.monotonic() + patience
        while not (value := self.ask(expression)):
            assert time.monotonic() < end, f"never became true: {expression}\n{self.complaints}"
            time.sleep(0.02)
        return value

    def until(self, condition: Callable[[], bool]) -> None:
        """Until something outside is so."""
        end = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < end, f"it never came to that\n{self.complaints}"
            time.sleep(0.02)

    def close(self) -> None:
        self.command("Target.closeTarget", targetId=self._target)

    def text(self, selector: str) -> str:
        value: str = self.ask(f"document.querySelector({json.dumps(selector)}).innerText")
        return value

    def point(self, selector: str) -> tuple[float, float]:
        """Move the mouse to the middle of it."""
        node = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{node}.scrollIntoView({{block: 'nearest'}})")
        middle = "({x, y, width, height}) => [x + width / 2, y + height / 2]"
        x, y = self.ask(f"({middle})({node}.getBoundingClientRect())")
        self.command("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        return x, y

    def click(self, selector: str) -> None:
        x, y = self.point(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.command("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str) -> None:
        """Key by key, as people do."""
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

    def prefer(self, **features: str) -> None:
        """Such as prefers_color_scheme="dark"."""
        listed = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.command("Emulation.setEmulatedMedia", features=listed)

    def picture(self, path: Path, transparent: bool = False) -> None:
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
def browser() -> Iterator[Browser]:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pipes = Pipes(folder)
        try:
            yield Browser(pipes)
        finally:
            pipes.close()
