# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: python -m host_tenants EXPERIMENT... --out DIR

As root.  All happens in a mount namespace of its own, with a /run and a bpffs of its own: what is
made there (network namespaces, pinned programs) is gone when the command is over.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from . import agents, cgroups, cost, dashboard, demo, faults, migrates, plot, yields

_INSIDE = "CCC_HOST_TENANTS"
EXPERIMENTS = ("demo", "yields", "test", "cost", "agents", "migrates", "dashboard")


def main() -> int:
    parser = argparse.ArgumentParser(prog="host_tenants", description=__doc__)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    if _INSIDE not in os.environ:
        unshare = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "host_tenants"]
        os.execvpe(unshare[0], [*unshare, *sys.argv[1:]], {**os.environ, _INSIDE: "1"})
    for kind, where in (("tmpfs", "/run"), ("bpf", "/sys/fs/bpf")):
        subprocess.run(["mount", "-t", kind, kind, where], check=True)
    try:
        return 0 if run(args.experiment, args.out.resolve()) else 1
    finally:
        cgroups.remove_all()


def run(name: str, out: Path) -> bool:
    if name == "demo":
        held = demo.run(out, available())
        plot.draw(out)
        return held
    others = {
        "yields": yields.run,
        "migrates": migrates.run,
        "test": faults.run,
        "cost": cost.run,
        "agents": agents.run,
        "dashboard": dashboard.run,
    }
    return others[name](out)


def available() -> list[str]:
    """The demo's sets of cases that this kernel has the algorithms for."""
    known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    return [name for name, cases in demo.CASES.items() if all(case.algorithm in known for case in cases)]


if __name__ == "__main__":
    sys.exit(main())
