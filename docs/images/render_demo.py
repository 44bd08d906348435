"""Draws docs/images/demo.svg from a real run of `dtq demo` in a terminal of its own.

.venv/bin/python docs/images/render_demo.py [more arguments of dtq demo]
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

COLUMNS, ROWS = 128, 50
_TARGET = Path(__file__).with_name("demo.svg")
_ERASED_LINE = re.compile(r"^.*\r(?:\x1b\[2K)?(?=.)")
_MOVEMENT = re.compile(r"\x1b\[\?25[lh]|\x1b\[2K|\x1b\[\d*A")


def run(arguments: list[str]) -> str:
    """Run `dtq demo` on a fresh data directory under a terminal, and return everything it wrote there."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    written = bytearray()
    with tempfile.TemporaryDirectory() as directory:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("DTQ_")}
        environment |= {"DTQ_DATA_DIR": directory, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        demo = subprocess.Popen(
            [sys.executable, "-m", "dtq", "demo", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
        )
        os.close(theirs)
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
            if not piece:
                break
            written += piece
        code = demo.wait()
    os.close(ours)
    if code != 0:
        sys.exit(f"dtq demo ended with code {code}:\n{written.decode(errors='replace')}")
    return written.decode()


def last_frame(written: str) -> list[str]:
    """Return the lines as they stand on the screen at the end: of a line drawn again and again, the last drawing."""
    lines = [_MOVEMENT.sub("", _ERASED_LINE.sub("", line.rstrip("\r"))) for line in written.split("\n")]
    return [line.rstrip() for line in lines]


def draw(lines: list[str]) -> str:
    """Return the lines as an SVG picture of a terminal."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text("$ dtq demo", style="bold"))
    for line in lines:
        console.print(Text.from_ansi(line), no_wrap=True, overflow="crop")
    picture = console.export_svg(title="dtq demo", theme=MONOKAI, unique_id="dtq-demo")
    return re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)  # a picture loads nothing from elsewhere


if __name__ == "__main__":
    _TARGET.write_text(draw(last_frame(run(sys.argv[1:]))))
