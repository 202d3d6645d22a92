# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The panels of monitoring/grafana-dashboard.json, of three tenants of a daemon that a Prometheus scrapes.

Prometheus answers the dashboard's own expressions; the curves are drawn here, and not by Grafana.
"""

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from ccc_experiments import plots
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .dumbbell import Dumbbell
from .service import Service, until

MONITORING = Path(__file__).resolve().parents[2] / "monitoring"
# As monitoring/prometheus.yml has it.
METRICS = "127.0.0.1:9170"
PROMETHEUS = "127.0.0.1:19090"
# Weight and flows of each tenant, and when it begins.
TENANTS = {"web": (3, 1, 0), "db": (1, 4, 0), "backup": (1, 8, 40)}
# What an operator does meanwhile, and when.
CHANGES = ((80, ("set", "web", "--cap", "4mbit")), (120, ("set", "backup", "--floor", "4500kbit")))
SECONDS, STEP_S = 160, 2
COLUMNS = 3
# Of so many curves only those are drawn that are not 0 all the time.
MANY = 8


def run(out: Path) -> bool:
    """Whether all panels could be asked for; draws them."""
    panels = json.loads((MONITORING / "grafana-dashboard.json").read_text())["panels"]
    answers = measured(out, panels)
    (out / "series.json").write_text(json.dumps(answers))
    draw(out, panels, answers)
    return True


def measured(out: Path, panels: list[dict]) -> list[list[list[dict]]]:
    """Of each target of each panel the series."""
    service = Service(out, {"uplink": {}}, metrics=METRICS)
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        bed = Dumbbell("ccc-dashboard", senders=len(TENANTS))
        stack.callback(bed.end)
        bed.make()
        for number, (name, (weight, _, _)) in enumerate(TENANTS.items()):
            service.add(name, "netns", bed.sender(number), "uplink", weight)
        service.await_connected(*TENANTS)
        prometheus(out, stack)
        bed.receive(SECONDS + 5)
        began = time.time()
        for number, (_, flows, after_s) in enumerate(TENANTS.values()):
            bed.send(number, flows, SECONDS - after_s, "reno", after_s=after_s)
        for after_s, words in CHANGES:
            time.sleep(began + after_s - time.time())
            service.tell(*words)
        time.sleep(began + SECONDS - time.time())
        return [[asked(target["expr"], began) for target in panel["targets"]] for panel in panels]


def prometheus(out: Path, stack: ExitStack) -> None:
    """One that asks each second, by our files, and has asked once."""
    for file in ("prometheus.yml", "ccc-rules.yml"):
        (out / file).write_text((MONITORING / file).read_text().replace("_interval: 15s", "_interval: 1s"))
    options = (f"--config.file={out}/prometheus.yml", f"--storage.tsdb.path={out}/tsdb")
    with (out / "prometheus.log").open("w") as log:
        command = ("prometheus", *options, f"--web.listen-address={PROMETHEUS}")
        process = subprocess.Popen(command, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)

    def has_asked() -> bool:
        # It does not answer from the first.
        with suppress(OSError):
            return bool(asked("ccc_build_info", time.time() - SECONDS))
        return False

    until("Prometheus has asked", has_asked)


def asked(expression: str, began: float) -> list[dict]:
    """The series of an expression, from then on; times are since then."""
    every = expression.replace("$instance", ".*")
    query = urllib.parse.urlencode({"query": every, "start": began, "end": began + SECONDS, "step": STEP_S})
    with urllib.request.urlopen(f"http://{PROMETHEUS}/api/v1/query_range?{query}", timeout=10) as answer:
        series = json.load(answer)["data"]["result"]
    return [{**one, "values": [[at - began, value] for at, value in one["values"]]} for one in series]


def draw(out: Path, panels: list[dict], answers: list[list[list[dict]]]) -> None:
    rows = -(-len(panels) // COLUMNS)
    figure, axes = plots.subplots(4.2 * COLUMNS, 2.2 * rows, rows, COLUMNS, sharex=True, layout="constrained")
    for axis, panel, answer in zip(axes.flat, panels, answers):
        axis.set_title(panel["title"], fontsize=9)
        # Whose curve it is has a colour, and which of the panel's expressions a line.
        colours: dict[tuple, str] = {}
        curves = [(target, one) for target, series in zip(panel["targets"], answer) for one in series]
        if len(curves) > MANY:
            curves = [(target, one) for target, one in curves if any(float(value) for _, value in one["values"])]
        for target, one in curves:
            whose = tuple(one["metric"].get(label) for label in ("group", "vm", "kind"))
            colour = colours.setdefault(whose, f"C{len(colours) % 10}")
            line = ("-", "--", ":")[panel["targets"].index(target)]
            label = named(target["legendFormat"], one["metric"])
            axis.plot(*zip(*bends(one["values"])), lw=1, ls=line, color=colour, label=label)
        if not axis.lines:
            told = "0" if any(answer) else "No data"
            axis.text(0.5, 0.5, told, transform=axis.transAxes, ha="center", color="#777777")
        else:
            axis.legend(frameon=False, fontsize=6, ncols=2)
        axis.margins(y=0.1)
        axis.set_xlim(0, SECONDS)
        axis.set_ylim(bottom=0)
        axis.grid(visible=False)
        axis.yaxis.set_major_locator(MaxNLocator(3))
        axis.xaxis.set_major_locator(MaxNLocator(4))
        axis.yaxis.set_major_formatter(FuncFormatter(unit(panel["fieldConfig"]["defaults"].get("unit", "short"))))
    for axis in axes[-1]:
        axis.set_xlabel("s")
    plots.save(figure, out / "dashboard")


def bends(values: list) -> list[tuple[float, float]]:
    """A curve's points, but for those on a level line."""
    points = [(at, float(value)) for at, value in values]
    inner = [now for before, now, after in zip(points, points[1:], points[2:]) if not before[1] == now[1] == after[1]]
    return [points[0], *inner, *points[1:][-1:]]


def named(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda label: labels.get(label[1], ""), legend)


def unit(name: str) -> Callable[[float, object], str]:
    """How Grafana would write a number of that unit."""
    units = {"percentunit": (100, " %"), "bytes": (1e-3, " kB"), "Bps": (1e-6, " MB/s")}

    def written(value: float, _: object) -> str:
        scale, what = units.get(name, (1, ""))
        if name == "s":
            scale, what = (1, " s") if value >= 1 or not value else (1000, " ms")
        return f"{value * scale:.4g}{what}"

    return written
