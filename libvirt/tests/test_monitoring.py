# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A real Prometheus with the rules and the dashboard of `monitoring/`, beside a domain
whose flows are coupled."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from coupled_flows import COUNT, all_coupled, send
from testbed.host import HERE, stop
from testbed.wait import until

MONITORING = Path(__file__).resolve().parents[2] / "monitoring"
METRICS = "127.0.0.1:9170"
PROMETHEUS = "127.0.0.1:9090"
# Series that there are while something is wrong only, or where an operator wants it.
ABSENT = ("ccc_vm_held_bytes_per_second", "ccc_group_queued_vms", "rate(ccc_poll_")


def asked(expression: str) -> list[dict[str, Any]]:
    """What Prometheus says of an expression now; nothing if it does not answer."""
    query = urllib.parse.urlencode({"query": expression})
    try:
        with urllib.request.urlopen(f"http://{PROMETHEUS}/api/v1/query?{query}", timeout=10) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise AssertionError(f"{expression}: {error.read().decode()}") from error
    except OSError:
        return []
    return result


def value(expression: str) -> float | None:
    """The one number that an expression is, if it is known."""
    series = asked(expression)
    assert len(series) <= 1, f"{expression}: expected one series, got {series}"
    return float(series[0]["value"][1]) if series else None


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[None]:
    """One that asks and judges each second, by our files."""
    for file in ("prometheus.yml", "ccc-rules.yml"):
        text = (MONITORING / file).read_text()
        (tmp_path / file).write_text(text.replace("_interval: 15s", "_interval: 1s"))
    options = (f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb")
    with (tmp_path / "prometheus.log").open("w") as log:
        process = HERE.start("prometheus", *options, f"--web.listen-address={PROMETHEUS}", stdout=log, stderr=log)
    yield
    stop(process)


def test_rules_are_right():
    HERE.run("promtool", "check", "rules", MONITORING / "ccc-rules.yml")
    HERE.run("promtool", "test", "rules", MONITORING / "ccc-rules.test.yml")
    HERE.run("promtool", "check", "config", MONITORING / "prometheus.yml")


def test_a_prometheus_sees_shares_and_a_daemon_that_is_down(daemon, domain, receiver, prometheus):
    daemon.stop()
    daemon.metrics = METRICS
    daemon.start()
    daemon.cccctl("attach", "web", "--group", "uplink", "--weight", "3", "--floor", "1kbit", "--cap", "1gbit")
    domain.boot()
    send(domain)
    until("all flows coupled", lambda: all_coupled(domain, daemon))
    until("Prometheus has seen them", lambda: value('ccc_vm_coupled_flows{vm="web"}') == COUNT)
    assert value('ccc_vm_weight{vm="web"}') == 3
    until("it is alone there", lambda: value('ccc_group_vm_due_ratio{vm="web"}') == 1)
    until("rates are known", lambda: (value('rate(ccc_vm_reports_total{vm="web"}[5m])') or 0) > 0)
    with urllib.request.urlopen(f"http://{METRICS}/metrics", timeout=10) as answer:
        HERE.run("promtool", "check", "metrics", stdin=answer.read().decode())
    panels = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    for target in (target for panel in panels for target in panel["targets"]):
        expression = target["expr"].replace("$instance", ".*")
        if not expression.startswith(ABSENT):
            until(f"data of {expression}", lambda expression=expression: bool(asked(expression)))
        asked(expression)
    # One is pending for a second where Prometheus asked late.
    until("nothing is wrong", lambda: asked("ALERTS") == [])
    daemon.stop()
    until("Prometheus misses the daemon", lambda: value('ALERTS{alertname="CccDaemonDown"}') == 1)
