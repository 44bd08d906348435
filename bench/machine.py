"""Where a run was made: the facts that its figures depend on."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def describe(server_version: str) -> dict[str, Any]:
    """Processor, system, versions, revision, date, and the load average before the run; nothing that names the host."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "cpus": os.cpu_count(),
        "cpu": models[0] if models else platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "redis": server_version,
        "python": platform.python_version(),
        "revision": revision.strip(),
        "load_average_before": os.getloadavg()[0],
    }
