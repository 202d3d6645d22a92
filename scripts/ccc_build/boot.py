# SPDX-License-Identifier: GPL-2.0
"""Guests whose init checks something and says a line for each check, under QEMU's emulation.

The emulator is that of this machine, or ours where it has none.
"""

import re
import shutil
import subprocess
from pathlib import Path

from ccc_build.artefact import cache
from ccc_build.qemu import qemu

LIMIT_S = 900


def checked(name: str, kernel: Path, initrd: Path) -> int:
    """Boots a guest and prints its checks; the status of a program that has done so."""
    said = _console(shutil.which("qemu-system-x86_64") or qemu().get(), kernel, initrd).replace("\r", "")
    log = cache() / f"{name}.log"
    log.write_text(said)
    print("\n".join(line for line in said.splitlines() if re.match(r"ok |not ok |# ", line)))
    passed, failed = (len(re.findall(f"^{result} ", said, re.M)) for result in ("ok", "not ok"))
    if not re.search("^# end", said, re.M):
        print("\n".join([*said.splitlines()[-20:], f"{name}: the guest did not end"]))
        failed += 1
    print(f"{passed} passed, {failed} failed (log: {log})")
    return 0 if passed and not failed else 1


def _console(emulator: str | Path, kernel: Path, initrd: Path) -> str:
    """What the guest says until it ends."""
    words: list[str | Path] = [
        emulator, "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "384",
        "-nodefaults", "-no-reboot", "-display", "none", "-serial", "stdio",
        "-kernel", kernel, "-initrd", initrd,
        "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired as late:
        return (late.stdout or b"").decode(errors="replace")
    return done.stdout.decode(errors="replace")
