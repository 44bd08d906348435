"""Texts of others and durations, made fit for people to read: what the command line and the dashboard show."""

from __future__ import annotations


def printable(text: object, limit: int = 500) -> str:
    """Return `text` on one line with every control, invisible or direction-changing character escaped.

    Names, error texts and results in Redis were written by others: an escape sequence or a line end among them must
    not forge a line or steer the terminal. limit: longest answer in characters; what is cut is marked by "…".
    """
    raw = str(text)
    cut = raw if len(raw) <= limit else raw[: max(limit - 1, 0)] + "…"
    if cut.isprintable():
        return cut
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in cut
    )


def age(seconds: float) -> str:
    """Return a duration in the two largest units that matter: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min, 4 d 3 h."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, name, smaller, smaller_name in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name} {rest} {smaller_name}" if rest else f"{whole // size} {name}"
    return f"{whole} s"
