# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Command line: private-libvirt python -m qemu EXPERIMENT --out DIR --emulator QEMU ..."""

import argparse
import sys
from pathlib import Path

from ccc_experiments.lab import LabError

from . import demo, variants
from .domains import Machine
from .errors import GuestError, HostError
from .ssh import Key

EXPERIMENTS = ("demo-qemu", "variants-qemu")


def main() -> int:
    parser = argparse.ArgumentParser(prog="qemu", description=__doc__)
    parser.add_argument("experiment", choices=EXPERIMENTS)
    parser.add_argument("--out", type=Path, required=True, help="directory of the results")
    parser.add_argument("--emulator", type=Path, required=True, help="qemu-system-x86_64 with the device")
    parser.add_argument("--accelerator", choices=("kvm", "tcg"), required=True)
    parser.add_argument("--image", type=Path, required=True, help="what `scripts/build image` prints")
    parser.add_argument("--programs", type=Path, required=True, help="directory of ccc-vhost and cccctl")
    parser.add_argument("--quick", action="store_true", help="demo-qemu: only what has a bound, and half as long")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    out = args.out.resolve()
    try:
        machine = Machine(args.emulator, args.accelerator, args.image, Key.make(out))
        if args.experiment == "demo-qemu":
            holds = demo.run(out, machine, args.programs, args.quick)
        else:
            holds = variants.run(out, machine, args.programs)
    except (LabError, HostError, GuestError) as error:
        print(f"{args.experiment}: {error}", file=sys.stderr)
        return 2
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
