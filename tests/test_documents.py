"""The documents are in step with the code: tables made from it, links, paths, test names, and the code they show."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import dtq
from dtq import scripts
from dtq.cli import program as program  # registers the commands
from dtq.cli.manual import COMMANDS
from dtq.keys import Keys
from dtq.options import OPTION_NAMES
from dtq.settings import settings_table

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
CODE = [path for path in DOCUMENTS if path.name == "README.md" or path.parent.name == "guide"]
TASK_OPTIONS = set(inspect.signature(dtq.App.task).parameters) - {"self", "function"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def generator() -> ModuleType:
    """The module docs/generate.py."""
    specification = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def without_code(text: str) -> str:
    return re.sub(r"```.*?```", "", text, flags=re.DOTALL)


def links(path: Path) -> Iterator[tuple[str, str]]:
    """Text and target of every link of a document, pictures included."""
    yield from re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", without_code(path.read_text()))


def anchors(path: Path) -> set[str]:
    """The names by which GitHub reaches the headings of a document."""
    headings = re.findall(r"^#+ (.*)$", without_code(path.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_written_pages_are_what_the_generator_writes() -> None:
    """After a change of settings, errors or keys: .venv/bin/python docs/generate.py"""
    stale = [name_of(path) for path, text in generator().pages().items() if path.read_text() != text]
    assert stale == []


def test_every_key_has_a_row() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    functions = [name for name in vars(Keys) if not name.startswith("_") and name not in generator().NO_KEYS]
    assert [name for name in functions if f"| `{name}` |" not in text] == []


def test_every_setting_has_a_row() -> None:
    text = (ROOT / "docs" / "settings.md").read_text()
    assert [row.name for row in settings_table() if f"| `{row.name}` | `{row.env}` |" not in text] == []


def test_every_public_error_has_a_row() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    kinds = [
        name for name in dtq.__all__ if inspect.isclass(kind := getattr(dtq, name)) and issubclass(kind, BaseException)
    ]
    assert [name for name in kinds if f"| `dtq.{name}" not in text] == []


def test_every_script_has_a_row_and_no_other() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("## Scripts")[2].partition("\n## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == scripts.names()


def test_every_window_has_its_test() -> None:
    """tests/process/README.md names the test and the parameter that kill a process in each."""
    folder = ROOT / "tests" / "process"
    functions = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    windows = (folder / "test_windows.py").read_text()
    table = (folder / "README.md").read_text()
    assert [n for n in re.findall(r"`(test_\w+)`", table) if f"def {n}(" not in functions] == []
    named = set(re.findall(r"^def (\w+)\(scene: Scene\) -> Reached:", windows, re.MULTILINE))
    assert named == {n for n in re.findall(r"`(\w+)`", table.partition("## What")[0]) if f"def {n}(" in windows} - {
        "test_a_kill_in_a_window"
    }


def test_every_rule_that_the_code_cites_exists() -> None:
    """`protocol 4-7, 10` in a comment names rules of docs/protocol.md."""
    rules = {
        int(number)
        for number in re.findall(r"^(\d+)\. \*\*", (ROOT / "docs" / "protocol.md").read_text(), re.MULTILINE)
    }
    assert rules == set(range(1, len(rules) + 1))
    sources = [
        path
        for folder in ("python", "rust", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".lua", ".rs"}
    ]
    cited = {
        (name_of(path), int(number))
        for path in sources
        for part in re.findall(r"protocol (\d+(?:(?:, |-| and )\d+)*)", path.read_text())
        for number in re.findall(r"\d+", part)
    }
    assert [found for found in sorted(cited) if found[1] not in rules] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(document: Path) -> None:
    """Files exist, headings too; a link whose text is the name of a test leads to the file that has it."""
    broken: list[str] = []
    for text, target in links(document):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        path = (document.parent / file).resolve() if file else document
        test = re.fullmatch(r"`(test_\w+)`", text)
        if (
            not path.exists()
            or (anchor and anchor not in anchors(path))
            or (test and f"def {test[1]}(" not in path.read_text())
        ):
            broken.append(f"[{text}]({target})")
    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_named_paths_exist(document: Path) -> None:
    named = re.findall(r"`((?:python|rust|tests|bench|docs|examples)/[\w./-]*)`", without_code(document.read_text()))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_documents_speak_of_this_repository_only(document: Path) -> None:
    assert re.findall(r"(?<![\w.])/(?:work|tmp|root)\b[\w/.-]*", document.read_text()) == []


@pytest.mark.parametrize("document", CODE, ids=name_of)
def test_shown_code_fits_the_interface(document: Path) -> None:
    """It parses, names of `dtq` exist, and the options of tasks and enqueues are known."""
    wrong: list[str] = []
    for block in re.findall(r"^ *```python\n(.*?)^ *```", document.read_text(), re.MULTILINE | re.DOTALL):
        for node in ast.walk(ast.parse(textwrap.dedent(block))):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "dtq" and not hasattr(dtq, node.attr):
                wrong.append(f"dtq.{node.attr}")
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                allowed = {"options": OPTION_NAMES, "task": TASK_OPTIONS}.get(node.func.attr)
                if allowed is not None:
                    wrong += [f"{node.func.attr}({word.arg}=)" for word in node.keywords if word.arg not in allowed]
    assert wrong == []


def test_the_option_tables_of_the_guide_are_complete() -> None:
    text = (ROOT / "docs" / "guide" / "tasks.md").read_text()
    assert [name for name in sorted(OPTION_NAMES | TASK_OPTIONS) if f"`{name}`" not in text] == []


def test_the_worker_page_names_every_option_of_the_command() -> None:
    from dtq.cli.worker import worker

    text = (ROOT / "docs" / "guide" / "workers.md").read_text()
    words = [name for name in inspect.signature(worker).parameters if name not in {"context", "application", "preload"}]
    missing = [word for word in words if f"`--{word.replace('_', '-')}`" not in text]
    assert missing == []


def test_the_version_is_the_same_everywhere() -> None:
    for name in ("pyproject.toml", "Cargo.toml"):
        assert f'\nversion = "{dtq.__version__}"\n' in (ROOT / name).read_text(), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_shown_commands_exist(document: Path) -> None:
    """In text as `dtq word`, and at the start of a line in blocks."""
    text = document.read_text()
    blocks = "".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    words = r"dtq ([a-z]+)(?: ([a-z]+))?"
    shown = re.findall(f"`{words}", text) + re.findall(rf"^(?:[A-Z_]+=\S+ )*{words}", blocks, re.MULTILINE)
    groups = {words.split()[0] for words in COMMANDS if " " in words}
    unknown = [
        f"dtq {first} {second}".rstrip()
        for first, second in shown
        if (f"{first} {second}" if first in groups and second else first) not in {*COMMANDS, *groups}
    ]
    assert unknown == []
