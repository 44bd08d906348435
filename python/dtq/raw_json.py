"""JSON that others have written: read so that nothing in it is changed without a word."""

from __future__ import annotations

from typing import Any, cast

from dtq import _core
from dtq.errors import InvalidTask, from_core


def read_json(text: bytes, root: str = "payload") -> Any:
    """Return the value of JSON bytes; `root` names it in errors.

    Raises InvalidTask for what is no JSON (NaN and lone surrogates included), a key that stands twice in one object,
    an integer outside -2**63 ... 2**64-1 and a number beyond the range of a double, with the path of the offender.
    """
    import orjson

    try:
        _core.check_json(text, root)
        return orjson.loads(text)
    except _core.CoreError as error:
        raise from_core(error) from None
    except orjson.JSONDecodeError as error:
        raise InvalidTask(root, f"no JSON: {error}") from None


def read_object(text: bytes, root: str = "payload") -> dict[str, Any]:
    """The same of a JSON object. Raises InvalidTask, also for any other value."""
    value: object = read_json(text, root)
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    kinds: dict[type, str] = {
        type(None): "null",
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
    }
    kind = kinds.get(type(value), "an array")
    raise InvalidTask(root, f'a JSON object is needed, such as {{"name": 1}}, not {kind}')
