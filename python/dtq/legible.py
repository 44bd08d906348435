"""Texts of others, durations and sizes, made fit for people to read: what the command line and the dashboard show."""

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


def duration(seconds: float) -> str:
    """Return how long something took, in the unit that fits: 12 µs, 1.5 ms, 120 ms, 1.24 s, then as `age`."""
    if seconds <= 0:
        return "0 ms"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 10 else age(seconds)


def size(count: int) -> str:
    """Return bytes in the largest unit that keeps a digit before the point: 10 B, 7.0 MiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"
