"""The public types are what tests/typing says, by pyright in strict mode."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "typing" / "enqueue.py"


def test_enqueue_is_typed_by_the_handler(tmp_path: Path) -> None:
    configuration = {"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": "error"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(configuration))
    shutil.copy(SOURCE, tmp_path)
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    report = json.loads(checked.stdout)
    problems = [f"{found['range']['start']['line'] + 1}: {found['message']}" for found in report["generalDiagnostics"]]
    assert problems == []
    assert report["summary"]["filesAnalyzed"] == 1
