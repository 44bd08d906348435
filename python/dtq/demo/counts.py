"""What the census counts in one Python source file."""

from __future__ import annotations

import ast
import warnings

_BLOCKS = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)


def count_source(source: bytes, filename: str) -> dict[str, int]:
    """Parse `source` and return its `lines`, `functions`, `classes`, `imports`, `nesting` and `bytes`.

    nesting: how many blocks (functions, classes, if, for, while, with, try, match) lie in one another at the deepest
    place; `elif` stays on the level of its `if`. Raises SyntaxError, UnicodeDecodeError or ValueError when the file is
    no Python of this version.
    """
    with warnings.catch_warnings():
        # Old files are full of escapes that newer Pythons warn about; the census only counts.
        warnings.simplefilter("ignore")
        tree = ast.parse(source, filename)
    functions = classes = imports = deepest = 0
    # A list and not recursion: test files nest deeper than the interpreter's stack is meant for.
    pending: list[tuple[ast.AST, int]] = [(tree, 0)]
    while pending:
        node, depth = pending.pop()
        if isinstance(node, _BLOCKS):
            depth += 1
            deepest = max(deepest, depth)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions += 1
            elif isinstance(node, ast.ClassDef):
                classes += 1
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imports += 1
        elif isinstance(node, ast.expr):
            continue  # no statement lies inside an expression
        following_branch = _elif_of(node)
        for child in ast.iter_child_nodes(node):
            pending.append((child, depth - 1 if child is following_branch else depth))
    return {
        "lines": source.count(b"\n") + (not source.endswith(b"\n") and bool(source)),
        "functions": functions,
        "classes": classes,
        "imports": imports,
        "nesting": deepest,
        "bytes": len(source),
    }


def _elif_of(node: ast.AST) -> ast.If | None:
    """Return the `elif` branch of an `if`; only its column tells it from an `if` inside `else`."""
    if isinstance(node, ast.If) and len(node.orelse) == 1:
        branch = node.orelse[0]
        if isinstance(branch, ast.If) and branch.col_offset == node.col_offset:
            return branch
    return None
