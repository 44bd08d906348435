"""The shape of the source: layers, who may touch what, and what `import dtq` costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "python" / "dtq"

# From the bottom up. A module imports from its own layer and from those below; a name covers its submodules.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("_core",),
    ("errors", "clock", "spin", "_stale", "release"),
    ("models", "backoff", "settings", "failure", "waiting", "history", "logs", "legible"),
    ("embedded", "registry", "context", "options", "plan", "dead_letters", "keys", "scripts", "raw_json"),
    ("broker", "transport", "wire"),
    (
        *("app", "client", "bulk", "coalesce", "handles", "off_loop", "source", "side_effects", "executor"),
        *("overview", "bodies", "listing", "workers", "watching", "metrics", "telemetry"),
        *("queues", "task_acts", "dead_letter_acts", "announcing"),
    ),
    ("worker",),
    ("demo",),
    ("cli", "api", "dashboard", "testing"),
    ("__main__",),
)
SPEAKS_REDIS = {"broker", "transport", "wire", "scripts"}
# Who reads the wall clock. Everybody else is handed the time, so that tests can set it.
READS_THE_CLOCK = {"dtq.clock"}
NEVER_AT_IMPORT = {
    "redis", "hiredis", "asyncio", "uvloop", "typer", "rich", "pydantic", "prometheus_client", "opentelemetry",
    "fastapi", "uvicorn", "nicegui",
}  # fmt: skip
IMPORT_BUDGET = 1.8
"""So many times as long as `import asyncio` may `import dtq` take; measured: 1.5."""
LONGEST_FILE = 450


@dataclass(frozen=True)
class Import:
    """One import statement's target, as seen from the importing module."""

    target: str
    line: int
    at_import: bool  # runs when the module is imported: neither in a function nor under TYPE_CHECKING


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package by dotted name, the compiled one by its stub."""
    found = {"dtq._core": PACKAGE / "_core.pyi"}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: path for name, path in sorted(found.items()) if path.exists()}


@cache
def imports(name: str) -> tuple[Import, ...]:
    """Return what a module imports: at the top, in functions and for types only; `from dtq import x` names dtq.x."""
    path = modules()[name]
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]

    def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            return
        base = package[: len(package) - node.level + 1] if node.level else []
        source = ".".join([*base, *(node.module or "").split(".")]).strip(".")
        for alias in node.names:
            submodule = f"{source}.{alias.name}"
            yield submodule if submodule in modules() else source

    def walk(node: ast.AST, at_import: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import | ast.ImportFrom):
                yield from (Import(target, child.lineno, at_import) for target in targets(child))
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                for inner in child.body:
                    yield from walk(ast.Module([inner], []), at_import=False)
                for inner in child.orelse:
                    yield from walk(ast.Module([inner], []), at_import)
            else:
                function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                yield from walk(child, at_import and not function)

    return tuple(walk(ast.parse(path.read_text()), at_import=True))


def inside(name: str) -> Iterator[Import]:
    return (found for found in imports(name) if found.target.split(".")[0] == "dtq")


def layer(name: str) -> int | None:
    head = name.split(".")[1]
    return next((number for number, heads in enumerate(LAYERS) if head in heads), None)


def where(name: str, line: int) -> str:
    return f"{modules()[name].relative_to(ROOT)}:{line}"


def test_every_module_belongs_to_a_layer() -> None:
    assert [name for name in modules() if name != "dtq" and layer(name) is None] == []


def test_imports_point_downward() -> None:
    """Type-only imports and those inside functions count: they are dependencies of the reader too."""
    upward = [
        f"{where(name, found.line)} imports {found.target}"
        for name in modules()
        if name != "dtq" and (own := layer(name)) is not None
        for found in inside(name)
        if found.target != "dtq" and (other := layer(found.target)) is not None and other > own
    ]
    assert upward == []


def test_surfaces_stand_apart() -> None:
    """Command line, API and dashboard share verbs, and nothing of each other; the dashboard is served by the API."""
    surfaces = {"cli", "api", "dashboard"}
    crossing = [
        f"{where(name, found.line)} imports {found.target}"
        for name in modules()
        if name != "dtq" and (own := name.split(".")[1]) in surfaces
        for found in inside(name)
        if found.target != "dtq" and (other := found.target.split(".")[1]) in surfaces - {own}
        if (own, other) != ("dashboard", "api")
    ]
    assert crossing == []


def test_the_package_root_is_for_users_only() -> None:
    """A module that imported the root would load everything, and could not be loaded by it."""
    roots = [where(name, found.line) for name in modules() for found in inside(name) if found.target == "dtq"]
    assert roots == []


def test_no_import_cycles() -> None:
    """What is left after taking away, again and again, who imports nothing or is imported by nobody, is a knot."""
    edges = {(name, found.target) for name in modules() for found in inside(name) if found.target in modules()}
    while True:
        importing, imported = {source for source, _ in edges}, {target for _, target in edges}
        kept = {(source, target) for source, target in edges if target in importing and source in imported}
        if kept == edges:
            break
        edges = kept
    assert sorted(f"{source} imports {target}" for source, target in edges) == []


def test_only_the_broker_speaks_redis_and_only_when_used() -> None:
    speakers = [
        (name, found)
        for name in modules()
        for found in imports(name)
        if found.target.split(".")[0] in {"redis", "hiredis"}
    ]
    assert [where(name, found.line) for name, found in speakers if name.split(".")[1] not in SPEAKS_REDIS] == []
    assert [where(name, found.line) for name, found in speakers if found.at_import] == [], "import it at first use"


def test_only_the_clock_reads_the_wall_clock() -> None:
    readings = [
        where(name, node.lineno)
        for name, path in modules().items()
        if name not in READS_THE_CLOCK
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and _is_wall_clock(ast.unparse(node)))
        or (isinstance(node, ast.ImportFrom) and node.module == "time" and {"time", "time_ns"} & _names(node))
    ]
    assert readings == []


def _is_wall_clock(expression: str) -> bool:
    return re.fullmatch(r"time\.time(_ns)?|(\w+\.)?(datetime|date)\.(now|utcnow|today)", expression) is not None


def _names(node: ast.ImportFrom) -> set[str]:
    return {alias.name for alias in node.names}


def rust_code(path: Path) -> str:
    """Return a Rust file without its line comments."""
    return re.sub(r"//.*", "", path.read_text())


def test_unsafe_rust_is_in_one_file() -> None:
    files = [path for path in (ROOT / "rust").rglob("*.rs") if re.search(r"\bunsafe\b", rust_code(path))]
    assert [path.name for path in files if path.name != "slots.rs"] == []


def test_only_the_boundary_names_pyo3() -> None:
    """Everything else then builds and tests without Python."""
    folder = ROOT / "rust"
    files = [path.relative_to(folder) for path in folder.rglob("*.rs") if re.search(r"\bpyo3\b", rust_code(path))]
    assert [str(path) for path in files if path.parts[0] not in {"python", "python.rs"}] == []


def test_files_are_short_enough_to_read() -> None:
    sources = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.lua"), *(ROOT / "rust").rglob("*.rs")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def test_every_python_file_says_what_it_is() -> None:
    silent = [name for name, path in modules().items() if not ast.get_docstring(ast.parse(path.read_text()))]
    assert silent == []


@pytest.mark.parametrize("document", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_documents_name_files_that_exist(document: str) -> None:
    path = ROOT / document
    if not path.exists():
        pytest.skip(f"{document} is not written yet")
    named = re.findall(r"`((?:python|rust|tests|bench|docs|examples)/[\w./-]*)`", path.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def _import_ms(module: str) -> float:
    """Processor time of an import in a fresh interpreter."""
    program = (
        "import sys, time\n"
        "started = time.process_time()\n"
        f"import {module}\n"
        "print((time.process_time() - started) * 1000)\n"
        f"print(*sorted({NEVER_AT_IMPORT!r} & sys.modules.keys()) if {module!r} == 'dtq' else ())\n"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    elapsed, loaded = run.stdout.splitlines()
    assert loaded.split() == []
    return float(elapsed)


def test_importing_dtq_is_cheap() -> None:
    """A web process that only enqueues pays for no more than it uses."""
    ours: list[float] = []
    floors: list[float] = []
    for _ in range(12):
        # In turns, and the best of some: machines differ by a factor of two, and one machine from minute to minute.
        floors.append(_import_ms("asyncio"))
        ours.append(_import_ms("dtq"))
        if len(ours) >= 3 and min(ours) <= IMPORT_BUDGET * min(floors):
            return
    took = f"import dtq took {min(ours):.0f} ms at best, import asyncio {min(floors):.0f} ms"
    pytest.fail(f"{took}; the budget is {IMPORT_BUDGET} times as long")
