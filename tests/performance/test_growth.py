"""bench/growth.py: the proxy that puts Redis at a distance, the model of capacity, the words made of figures."""

from __future__ import annotations

import copy
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from bench import capacity, growth_report, page
from bench.capacity import Costs, rate
from bench.delay import delayed
from bench.servers import Server, open_server

ROUND_TRIP_S = 0.1
COSTS = Costs(redis_turn_us=50.0, redis_task_us=8.0, child_turn_us=100.0, child_task_us=5.0, redis_enqueue_us=3.0)


@pytest.fixture
def server() -> Iterator[Server]:
    with open_server("redis") as opened:
        yield opened


def connected(url: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(20)
    client.connect(url.removeprefix("unix://"))
    return client


def received(client: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = client.recv(size - len(found))
        assert part, "the connection was closed"
        found += part
    return bytes(found)


def test_what_is_on_its_way_does_not_wait_for_each_other(server: Server) -> None:
    """Ten pings on each of ten connections, sent one by one, take one round trip together and not a hundred."""
    with delayed(server.url, ROUND_TRIP_S) as url:
        clients = [connected(url) for _ in range(10)]
        started = time.monotonic()
        for _ in range(10):
            for client in clients:
                client.sendall(b"PING\r\n")
        for client in clients:
            assert received(client, 70) == b"+PONG\r\n" * 10
        took = time.monotonic() - started
        for client in clients:
            client.close()
    assert ROUND_TRIP_S <= took < 10 * ROUND_TRIP_S


def test_large_answers_come_whole_through_the_proxy(server: Server) -> None:
    value = bytes(range(256)) * 40_000
    server.client.set("large", value)
    with delayed(server.url, 0.001) as url:
        client = connected(url)
        client.sendall(b"GET large\r\n")
        head = f"${len(value)}\r\n".encode()
        assert received(client, len(head) + len(value) + 2) == head + value + b"\r\n"
        client.close()


def test_a_connection_that_the_server_closes_is_closed(server: Server) -> None:
    with delayed(server.url, 0.001) as url:
        client = connected(url)
        client.sendall(b"QUIT\r\n")
        assert received(client, 5) == b"+OK\r\n"
        assert client.recv(1) == b""
        client.close()


def test_one_child_goes_through_its_parts_one_after_the_other() -> None:
    turn_us = 100 * (COSTS.child_us() + COSTS.redis_us()) + 1000
    assert rate(COSTS, 1, 8, 1.0, redis_apart=True) == pytest.approx(100 / turn_us * 1e6, rel=1e-3)


@pytest.mark.parametrize("children", [1, 2, 5])
def test_two_equal_stations_share_their_customers(children: int) -> None:
    """The textbook's case: n customers at two stations of service time D are served at n / (n + 1) / D."""
    even = Costs(redis_turn_us=0, redis_task_us=10, child_turn_us=0, child_task_us=10, redis_enqueue_us=0)
    expected = children / (children + 1) * 100_000
    assert rate(even, children, 1, 0.0, redis_apart=True) == pytest.approx(expected, rel=1e-3)


def test_redis_takes_its_part_of_the_cores_it_shares() -> None:
    together = rate(COSTS, 4, 1.5, 0.5)
    left = 1.5 - together * COSTS.redis_us() / 1e6
    assert together == pytest.approx(rate(COSTS, 4, left, 0.5, redis_apart=True), rel=1e-3)


def test_many_children_come_up_to_what_is_scarce() -> None:
    redis_limit = 1e6 / COSTS.redis_us()
    assert rate(COSTS, 500, 500, 1.0, redis_apart=True) == pytest.approx(redis_limit, rel=0.01)
    shared = 2e6 / (COSTS.redis_us() + COSTS.child_us(100) + 100)
    assert rate(COSTS, 64, 2, 0.0, batch=100, handler_us=100) == pytest.approx(shared, rel=0.02)


def test_a_longer_way_and_smaller_batches_are_never_faster() -> None:
    ways = [rate(COSTS, 8, 4, ms) for ms in (0, 0.5, 1, 5, 50)]
    assert ways == sorted(ways, reverse=True)
    batches = [rate(COSTS, 8, 4, 1.0, batch=size) for size in (1, 10, 100, 1000)]
    assert batches == sorted(batches)


def test_costs_are_found_again_in_a_curve_made_of_them() -> None:
    found = capacity.costs(growth_run())
    assert found.redis_turn_us == pytest.approx(COSTS.redis_turn_us)
    assert found.child_task_us == pytest.approx(COSTS.child_task_us)


def test_a_slow_handler_has_a_turn_of_its_own() -> None:
    """As measured: 0.08 turns a task with handlers of 0.2 ms, one with 1.2 and 5 ms."""
    sizes = [capacity.turn_size(handler_us) for handler_us in (0, 200, 1_200, 5_000)]
    assert sizes == pytest.approx([100, 20, 1, 1])


def test_a_plan_grows_with_its_load() -> None:
    plans = [capacity.plan(COSTS, load) for load in (1_000, 100_000, 1_000_000)]
    assert plans[0].redis_servers == plans[0].child_cores == 1
    assert plans[2].redis_servers == 17  # a million times 11.5 microseconds, seven tenths busy
    assert plans[1].child_cores < plans[2].child_cores


def point(x: float, **changed: Any) -> dict[str, Any]:
    batch = changed.get("batch", 100)
    return {
        "x": x, "tasks": 1000, "children": 8, "batch": batch, "payload_bytes": 150, "per_s": 50_000.0,
        "range_per_s": [40_000.0, 60_000.0], "enqueue_per_s": 1.0, "redis_enqueue_us": 3.0, "others_busy": 0.0,
        "redis_drain_us": COSTS.redis_us(batch), "child_us": COSTS.child_us(batch), "redis_busy": 0.5,
        "queued_bytes": 330.0, "child_private_mb": 6.0, "round_trip_ms": 0.05, **changed,
    }  # fmt: skip


def growth_run() -> dict[str, Any]:
    return {
        "machine": dict.fromkeys(("date", "revision", "cpu", "redis", "python", "system"), "x") | {"cpus": 2},
        "repeats": 3,
        "seconds": 60.0,
        "problems": [],
        "curves": {
            "children": [point(1, per_s=30_000.0), point(2)],
            "batch": [point(size, batch=size) for size in (1, 10, 100, 1000)],
            "payload": [point(0.1), point(256, payload_bytes=262_144)],
            "backlog": [point(1e3), point(1e5, tasks=100_000)],
            "queues": [point(1), point(1000)],
            "round_trip": [point(0), point(1, per_s=45_678.0, round_trip_ms=1.2), point(5, children=16)],
        },
    }


def test_every_figure_of_the_section_is_of_the_run() -> None:
    text = growth_report.section(growth_run())
    assert "With 1 ms and 8 children dtq drains 45,678/s, 91% of the rate without a way" in text
    assert "| Redis | 50 | 8.0 | 8.5 |" in text
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []
    assert [name for name in growth_report.CURVES if f"### {name.capitalize().replace('_', ' ')}" not in text] == []


@pytest.mark.parametrize("missing", growth_report.CURVES)
def test_a_run_of_some_curves_has_words_too(missing: str) -> None:
    run = copy.deepcopy(growth_run())
    del run["curves"][missing]
    if missing == "batch":
        assert "### What a task costs" not in growth_report.section(run)
    else:
        assert f"### {missing.capitalize().replace('_', ' ')}\n" not in growth_report.section(run)


def test_what_was_not_recorded_is_said_to_be_missing() -> None:
    assert (
        page.measured({}).count("Not recorded: `python ") == len(page.RUNS) - 3
    )  # two are told with another, one below
    assert page.growth({}).startswith("Not recorded.")


def test_where_a_peer_is_ahead_it_is_named() -> None:
    machine = dict.fromkeys(("date", "revision", "rounds", "cpus", "cpu", "system", "redis"), "x")
    entrant = {"handlers": "1", "nap_handlers": "1", "versions": {}, "tuning": "none", "recovery": ""}
    figures = {
        "dtq": {"drain_per_s": 900.0, "pick_up_p99_ms": 0.5},
        "other": {"drain_per_s": 100.0, "pick_up_p99_ms": 0.4},
        "bare": {"drain_per_s": 5000.0, "pick_up_p99_ms": 0.1},
    }
    runs = [{"entrant": name, "round": 0, "figures": each, "problems": []} for name, each in figures.items()]
    report = {"machine": machine, "entrants": dict.fromkeys(figures, entrant), "runs": runs, "skipped": {}}
    losses = page.measured({"peers.json": report}).partition("### Where dtq loses")[2]
    assert losses.strip() == "- pick-up, idle, p99 ms: dtq 0.50, ahead of it other 0.40."
