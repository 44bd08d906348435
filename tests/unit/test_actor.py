"""Who stands in the audit log where nobody is named."""

from __future__ import annotations

import os
import socket

import pytest

from dtq.broker.auditing import this_actor


def test_it_is_the_user_of_the_process_and_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "alice")
    assert this_actor() == f"alice@{socket.gethostname()}"


def test_a_user_without_an_account_is_known_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a number of its own."""
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert this_actor() == f"3999999999@{socket.gethostname()}"
