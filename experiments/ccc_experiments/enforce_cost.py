# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What holding a VM at its tap costs the host, in instructions for each packet.

A guest of QEMU is the host, with a bridge, two VMs in namespaces at veth pairs, and an uplink;
QEMU counts instructions, one a nanosecond of the guest's clock (`-icount`), so the machine's
load does not matter.  All is in one run: no queue, a FIFO, HTB with FQ-CoDel for each VM, and
what the daemon does to a VM that it holds, and has let go.
"""

import re
import subprocess
from pathlib import Path
from statistics import median

from .lab import LabError, printed
from .scores import Score, print_scores, write_result

PATIENCE_S = 600
WANTED = ("none", "fifo", "fifo-again", "htb-fq_codel", "held", "let-go")
COUNT = 5000
TIMES = 5
# Addresses are asked for beside what is counted.
MORE = 20
PARAMETERS = "console=ttyS0 panic=-1 tsc=reliable"
# Nothing of the daemon's is in the way of a VM that it does not hold.
SAME = 30
TIMES_HTB = 2.0


def run_guest() -> str:
    """What the guest says on its console."""
    guest, emulator = printed("scripts/build", "shaper-guest"), printed("scripts/build", "qemu")
    command: list[str | Path] = [
        *(emulator, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", "max", "-smp", "1"),
        *("-m", "256M", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
        *("-kernel", guest / "vmlinuz", "-initrd", guest / "initrd", "-append", PARAMETERS),
    ]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise LabError(f"the guest has not ended within {PATIENCE_S} s") from error
    return done.stdout.decode(errors="replace")


def numbers(console: str) -> dict[str, float]:
    """Instructions of a packet, by what the host does: the median of what was measured."""
    found = re.findall(r"^@ (\S+) ([\d.]+) (\d+)\s*$", console, re.M)
    each = {name: [float(took) for of, took, _ in found if of == name] for name in WANTED}
    if len(found) != TIMES * len(WANTED) or any(len(took) != TIMES for took in each.values()):
        raise LabError(f"the guest has not measured all: {found}; its console ends: {console[-800:]}")
    if not all(COUNT <= int(packets) <= COUNT + MORE for _, _, packets in found):
        raise LabError(f"not all packets have arrived: {found}")
    return {name: median(took) for name, took in each.items()}


def scores(each: dict[str, float]) -> list[Score]:
    over = {name: value - each["fifo"] for name, value in each.items()}
    return [
        Score("a VM let go: over a FIFO", abs(over["let-go"]), "instructions", "<=", SAME),
        Score("a VM held: over a FIFO, of what HTB for each VM costs", over["held"] / over["htb-fq_codel"], "times",
              "<=", TIMES_HTB),
        Score("the same again: apart", abs(over["fifo-again"]), "instructions", "<=", SAME),
    ]  # fmt: skip


def run(out: Path) -> bool:
    """`make bench-enforce`."""
    console = run_guest()
    (out / "console.log").write_text(console)
    each = numbers(console)
    for name, value in each.items():
        print(f"  {name:13} {value:8.0f} instructions a packet, {value - each['fifo']:+.0f} over a FIFO")
    judged = scores(each)
    write_result(out / "result.json", [each], judged, {"experiment": "enforce-cost", "packets": COUNT, "times": TIMES})
    return print_scores(judged)
