# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What holding a VM at its tap costs the host, in instructions for each packet.

A guest of QEMU is the host, with a bridge, two VMs in namespaces at veth pairs, and an uplink;
QEMU counts instructions, one a nanosecond of the guest's clock (`-icount`), so the machine's
load does not matter.  All is in one run: no queue, a FIFO, HTB with FQ-CoDel for each VM, and
what the daemon, which runs there, does to a VM that it holds, and has let go; HTB and the
daemon's shaper again where packets wait there; and what looking at taps takes.
"""

import gzip
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median

from .lab import LabError, printed, release
from .scores import Score, print_scores, write_result

PATIENCE_S = 600
WANTED = ("none", "fifo", "fifo-again", "htb-fq_codel", "held", "let-go")
COUNT = 5000
TIMES = 5
# Those that are sent at once, and wait.
WAITING = ("waiting-fifo", "waiting-htb", "waiting-held")
WAITING_COUNT = 700
WAITING_NS = 2e8
# Nothing but the loop.
ALONE = "no-daemon"
# Taps that the daemon looks at, how often in a second, and how often that is measured.
TAPS = (10, 100)
LOOKS = 20
LOOKED = 3
# Addresses are asked for beside what is counted.
MORE = 20
PARAMETERS = "console=ttyS0 panic=-1 tsc=reliable"
# Nothing of the daemon's is in the way of a VM that it does not hold.
SAME = 30
TIMES_HTB = 2.0
# Percent.
LOOKING = 6


def add_daemon(initrd: Path, daemon: Path, to: Path) -> None:
    """An initrd with the daemon and its libraries, in a second archive behind the first."""
    linked = subprocess.run(["ldd", daemon], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        for source, place in [(daemon, "bin/ccc-vhost"), *((Path(lib), lib) for lib in re.findall(r"/\S+", linked))]:
            copy = root / place.lstrip("/")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)
        names = "\n".join(sorted(str(path.relative_to(root)) for path in root.rglob("*")))
        command = ("cpio", "-o", "-H", "newc", "--quiet", "--owner=0:0")
        packed = subprocess.run(command, cwd=root, input=names.encode(), capture_output=True, check=True)
    to.write_bytes(initrd.read_bytes() + gzip.compress(packed.stdout, 1))


def run_guest() -> str:
    """What the guest says on its console."""
    guest, emulator = printed("scripts/build", "shaper-guest"), printed("scripts/build", "qemu")
    with tempfile.TemporaryDirectory() as name:
        initrd = Path(name) / "initrd"
        add_daemon(guest / "initrd", release() / "ccc-vhost", initrd)
        command: list[str | Path] = [
            *(emulator, "-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-cpu", "max", "-smp", "1"),
            *("-m", "256M", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio"),
            *("-kernel", guest / "vmlinuz", "-initrd", initrd, "-append", PARAMETERS),
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


def spared(console: str) -> dict[str, float]:
    """The part of its rounds that the guest's loop has, by what goes on meanwhile: the median."""
    found = re.findall(r"^= (\S+) (\d+) (\d+) (\d+)\s*$", console, re.M)
    if not all(WAITING_COUNT <= int(packets) <= WAITING_COUNT + MORE for of, *_, packets in found if of in WAITING):
        raise LabError(f"not all packets have arrived: {found}")
    wanted = dict.fromkeys(WAITING, TIMES) | dict.fromkeys((ALONE, *map(looking, TAPS)), LOOKED)
    each = {name: [int(rounds) / int(ns) for of, rounds, ns, _ in found if of == name] for name in wanted}
    if any(len(each[name]) != times for name, times in wanted.items()):
        raise LabError(f"the guest has not measured all: {found}; its console ends: {console[-800:]}")
    return {name: median(rounds) / median(each[ALONE]) for name, rounds in each.items()}


def looking(taps: int) -> str:
    return f"taps-{taps}"


def costs(console: str) -> dict[str, float]:
    """Instructions: of a packet by what the host does, of a second by how many taps are looked at."""
    spare = spared(console)
    waiting = {name: (1 - spare[name]) * WAITING_NS / WAITING_COUNT for name in WAITING}
    return numbers(console) | waiting | {looking(taps): (1 - spare[looking(taps)]) * 1e9 for taps in TAPS}


def of_a_look(each: dict[str, float]) -> float:
    """Instructions of a look at one more tap."""
    few, many = TAPS
    return (each[looking(many)] - each[looking(few)]) / (many - few) / LOOKS


def scores(each: dict[str, float]) -> list[Score]:
    over = {name: value - each["fifo"] for name, value in each.items()}
    waiting = {name: each[name] - each["waiting-fifo"] for name in WAITING}
    most = each[looking(TAPS[-1])] / 1e7
    return [
        Score("a VM let go: over a FIFO", abs(over["let-go"]), "instructions", "<=", SAME),
        Score("a VM held: over a FIFO, of what HTB for each VM costs", over["held"] / over["htb-fq_codel"], "times",
              "<=", TIMES_HTB),
        Score("the same, where packets wait", waiting["waiting-held"] / waiting["waiting-htb"], "times",
              "<=", TIMES_HTB),
        Score("the same again: apart", abs(over["fifo-again"]), "instructions", "<=", SAME),
        Score(f"looking at {TAPS[-1]} taps, of a processor of 1 instruction a nanosecond", most, "%", "<=", LOOKING),
    ]  # fmt: skip


def run(out: Path) -> bool:
    """`make bench-enforce`."""
    console = run_guest()
    (out / "console.log").write_text(console)
    each = costs(console)
    for name in WANTED:
        print(f"  {name:13} {each[name]:8.0f} instructions a packet, {each[name] - each['fifo']:+.0f} over a FIFO")
    for name in WAITING:
        print(f"  {name:13} {each[name]:8.0f} instructions a packet, {each[name] - each[WAITING[0]]:+.0f} over a FIFO")
    for taps in TAPS:
        print(f"  the daemon, {taps} taps: {each[looking(taps)]:.0f} instructions a second")
    print(f"  a look at one more: {of_a_look(each):.0f} instructions")
    judged = scores(each)
    about = {"experiment": "enforce-cost", "packets": COUNT, "times": TIMES, "look": round(of_a_look(each))}
    write_result(out / "result.json", [each], judged, about)
    return print_scores(judged)
