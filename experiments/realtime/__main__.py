# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: testbed/private-libvirt python -m realtime EXPERIMENT --out DIR [--quick]"""

import argparse
import sys
from functools import partial
from pathlib import Path

from ccc_experiments.lab import LabError
from testbed import artefacts, qemu
from testbed.errors import TestbedError
from testbed.libvirt import Machine
from testbed.ssh import Key

from . import attacks, demo, variants

EXPERIMENTS = ("demo-qemu", "variants-qemu", "attacks-qemu")


def main() -> int:
    parser = argparse.ArgumentParser(prog="realtime", description=__doc__)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--quick", action="store_true", help="demo-qemu: only what has a bound, and half as long")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    out = args.out.resolve()
    try:
        emulator, image = artefacts.build("qemu"), artefacts.build("image")
        accelerator = qemu.accelerator(emulator, image / "vmlinuz")
        machine = Machine(emulator, accelerator, image, Key.make(out))
        runs = {"variants-qemu": variants.run, "attacks-qemu": attacks.run}
        demo_run = partial(demo.run, quick=args.quick)
        holds = runs.get(args.experiment, demo_run)(out, machine)
    except (LabError, TestbedError) as error:
        print(f"{args.experiment}: {error}", file=sys.stderr)
        return 2
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
