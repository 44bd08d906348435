"""The processes beside the workers: proxies on the way to the server, producers, operators."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.process.harness import ROOT


def start_module(module: str, *arguments: object, **options: Any) -> subprocess.Popen[bytes]:
    """`python -m tests.chaos.<module>`; it dies with this process, also when it is stopped."""
    command = [sys.executable, "-m", f"tests.chaos.{module}", *map(str, arguments)]
    if setpriv := shutil.which("setpriv"):
        command = [setpriv, "--pdeathsig", "KILL", *command]
    return subprocess.Popen(command, cwd=ROOT, **options)


class Connections:
    """The way of some processes to the server: a proxy process (tests/chaos/proxy.py) that can be disturbed."""

    def __init__(self, name: str, target: Path, directory: Path) -> None:
        self.name = name
        self.url = f"unix://{directory / name}"
        self._socket = directory / name
        self._target = target
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it listens."""
        self._process = start_module("proxy", self._target, self._socket, stdin=subprocess.PIPE)
        deadline = time.monotonic() + 20
        while not self._socket.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the proxy of {self.name} did not start")
            time.sleep(0.01)

    def tell(self, word: str) -> None:
        """Give it a word of tests/chaos/proxy.py."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
        self._process.stdin.flush()

    def signal(self, number: int) -> None:
        """SIGSTOP holds everything back that passes, SIGCONT lets it through."""
        assert self._process is not None
        self._process.send_signal(number)

    def close(self) -> None:
        """End it."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.kill()
            self._process.wait()


class Client:
    """A producer or an operator: whoever is killed is followed by another one with the next number."""

    def __init__(
        self, module: str, arguments: list[object], first: int, step: int, directory: Path, environment: dict[str, str]
    ) -> None:
        self.module = module
        self._arguments = arguments
        self._number, self._step = first, step
        self._log = directory / f"{module}-{first}.log"
        self._environment = environment
        self.failures: list[str] = []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self._log.open("ab") as log:
            self._process = start_module(
                self.module, *self._arguments, self._number,
                env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def follow(self) -> int:
        """Kill it and start the next one; the pid of the killed one."""
        process = self._process
        assert process is not None
        said = self._complaint(process.poll())
        process.kill()
        process.wait()
        self.failures += said
        self._number += self._step
        self.start()
        return process.pid

    def stop(self) -> list[str]:
        """End it in good order; what it had to say if it, or one before it, did not run to the end."""
        process, self._process = self._process, None
        if process is None:
            return self.failures
        process.send_signal(signal.SIGTERM)
        try:
            code: int | None = process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        if code == -signal.SIGTERM:  # it had hardly begun
            code = 0
        return self.failures + self._complaint(code)

    def close(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _complaint(self, code: int | None) -> list[str]:
        return [f"the {self.module} failed: exit {code}: {self._log.read_text()[-2000:]}"] if code else []
