"""The page docs/cli.md, made of the commands themselves: what each does, its options, examples, exit codes, JSON."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import typer

from dtq.cli.manual import COMMANDS, SHARED_FIELDS
from dtq.cli.program import program

_PAGE = """\
# The command line

<!-- Written by docs/generate.py from python/dtq/cli; edit that instead. -->

`dtq COMMAND --help` shows the same for one command. Every command that prints something takes `--json`: one document on
stdout in pure ASCII (`dtq events` and `dtq top`: an object a line), with the fields below; others may be added, these
stay. Their names are those of the [HTTP API](http.md): times are ISO 8601 with an offset, durations `…_seconds`. Errors
are one line on stderr. What comes from tasks is printed escaped: it forges no line and steers no terminal. What cannot
be undone asks first, or takes `--yes`; where nobody can be asked it is refused, with code 2. Long work shows on
stderr how far it has come.

`--redis-url` stands before or behind the command; else `DTQ_REDIS_URL` counts, else the [embedded
store](guide/embedded.md). Every other [setting](settings.md) is taken from its variable.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed |
| 2 | wrong words or settings |
| 3 | Redis unavailable |
| 4 | not found |
| 5 | refused, or not confirmed |
| 130 | interrupted |

`dtq --install-completion` makes the tab key complete commands, options, queues (where `DTQ_REDIS_URL` is set), statuses
and events in bash, zsh and fish; open a new shell then.

| command | does |
|---|---|
{table}

{commands}

{shared}
"""

_EVERYWHERE = {"redis_url", "as_json", "context"}
"""Options that the head of the page tells of."""


def command_line_page() -> str:
    """Return docs/cli.md."""
    groups = [name.name for name in (*program.registered_commands, *program.registered_groups)]
    words = sorted(COMMANDS, key=lambda word: (groups.index(word.split()[0]), list(COMMANDS).index(word)))
    table = "\n".join(f"| [`dtq {word}`](#dtq-{word.replace(' ', '-')}) | {_first(word)} |" for word in words)
    return _PAGE.format(table=table, commands="\n".join(map(_section, words)).rstrip(), shared=_shared())


def _first(words: str) -> str:
    """The first sentence of its help."""
    return _cell(_plain(words).partition("\n")[0])


def _plain(words: str) -> str:
    return inspect.getdoc(COMMANDS[words][0]) or ""


def _section(words: str) -> str:
    function, manual = COMMANDS[words]
    parts = [f"## dtq {words}", _plain(words), "```\n" + "\n".join(manual.examples) + "\n```"]
    hints = get_type_hints(function, include_extras=True)
    rows = [
        _parameter(parameter, hints[parameter.name])
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in _EVERYWHERE
    ]
    if rows:
        parts.append("\n".join(["| argument or option | meaning | default |", "|---|---|---|", *rows]))
    codes = "\n".join(f"| {code} | {_cell(meaning)} |" for code, meaning in manual.exits.items())
    parts.append(f"| exit code | meaning |\n|---|---|\n{codes}")
    if manual.fields:
        parts.append(f"| field of its JSON | meaning |\n|---|---|\n{_fields(manual.fields)}")
    return "\n\n".join(parts) + "\n"


def _shared() -> str:
    """The tables of what many commands print."""
    parts: list[str] = []
    for title, fields in SHARED_FIELDS.items():
        rows = "\n".join(f"| `{name}` | {_cell(meaning)} |" for name, meaning in fields.items())
        parts.append(f"## {title}\n\n| field | meaning |\n|---|---|\n{rows}")
    return "\n\n".join(parts)


def _fields(fields: Mapping[str, str]) -> str:
    """Rows of fields; those of an object that many commands print stand in a table of their own."""
    left = dict(fields)
    for title, shared in SHARED_FIELDS.items():
        link = f"[{title}](#{title.replace(' ', '-')})"
        if shared.items() <= left.items():  # it is the document itself
            left = {link: "all of its fields", **{name: text for name, text in left.items() if name not in shared}}
        for name in fields:
            nested = {f"{name}.{field}" for field in shared}
            if nested <= left.keys():
                left = {field: text for field, text in left.items() if field not in nested}
                left[name] += f"; each {link}"
    rows = [(f"`{name}`" if not name.startswith("[") else name, text) for name, text in left.items()]
    return "\n".join(f"| {name} | {_cell(text)} |" for name, text in rows)


def _parameter(parameter: inspect.Parameter, hint: Any) -> str:
    kind, info = get_args(hint)[:2]
    text = _cell(info.help or "")
    if isinstance(info, typer.models.ArgumentInfo):
        return f"| `{str(info.metavar or parameter.name.upper()).strip('[]')}` | {text} | |"
    # Within Annotated the first name stands where else the default does.
    named = [word for word in (info.default, *(info.param_decls or ())) if isinstance(word, str)]
    flag, long = kind is bool, parameter.name.replace("_", "-")
    words = named or [f"--{long}", *([f"--no-{long}"] if flag and parameter.default is True else [])]
    value = "" if flag else f" {info.metavar or _KINDS.get(_bare(kind), 'TEXT')}"
    given = parameter.default
    default = "" if flag or given is None else f"{given:g}" if isinstance(given, (int, float)) else f"`{given}`"
    return f"| `{', '.join(words)}{value}` | {text} | {default} |"


_KINDS = {int: "NUMBER", float: "NUMBER"}


def _bare(kind: Any) -> Any:
    """`float | None` as float."""
    return next((part for part in get_args(kind) if part is not type(None)), kind)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
