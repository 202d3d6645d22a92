# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Live migration as a tenant: `virsh migrate` between two hosts over the bottleneck, beside a tenant that
begins to send and ends.

libvirt makes the connection of a migration and hands it to QEMU: so it is of libvirtd's cgroup, not of
the domain's.  Both are tenants here, and it is seen whose flow it is.
"""

import json
import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

from ccc_experiments.scores import Score, print_scores, write_result
from testbed import artefacts
from testbed.host import LibvirtHost

from . import cgroups, rounds
from .dumbbell import RECEIVER, Dumbbell
from .rounds import WEIGHTS
from .service import Service, until

ALONE_S, TOGETHER_S, AFTER_S = 20, 20, 15
# More than the path carries until the tenant has ended, and not by much.
PAYLOAD_BYTES = 60 << 20
DOMAIN = """<domain type='qemu' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
  <name>moving</name>
  <memory unit='MiB'>128</memory>
  <vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/></features>
  <devices>
    <emulator>{emulator}</emulator>
    <controller type='usb' model='none'/>
    <memballoon model='none'/>
  </devices>
  <qemu:commandline>
    <qemu:arg value='-device'/>
    <qemu:arg value='loader,file={payload},addr=0x2000000,force-raw=on'/>
  </qemu:commandline>
</domain>
"""


def run(out: Path) -> bool:
    samples, coupled = sampled(out)
    runs, scores, means = rounds.judged(out, samples, times=1)
    scores.append(Score("flows of libvirtd's cgroup coupled while it migrated", coupled["libvirtd"], "1", ">=", 1))
    what = "web (1 flow, weight 3) beside virsh migrate of a domain with 60 MiB (libvirtd's cgroup, weight 1)"
    write_result(out / "result.json", runs, scores, {"what": what, "mbits": means, "coupled_flows": coupled})
    return print_scores(scores)


def sampled(out: Path) -> tuple[list[list[float]], dict[str, int]]:
    """Times, and bytes that have come to the bottleneck from web and from the migration; coupled flows."""
    seconds = ALONE_S + TOGETHER_S + AFTER_S
    service = Service(out, {"uplink": {}})
    with ExitStack() as stack:
        stack.callback(service.stop)
        service.start()
        for name in ("libvirtd", "qemu"):
            service.add(name, "cgroup", cgroups.make(name), "uplink", WEIGHTS["bulk"])
        stack.callback(until, "all of the source has ended", empty)
        source = LibvirtHost("source", out, cgroups.path("libvirtd"))
        stack.callback(source.close)
        target = LibvirtHost("target", out)
        stack.callback(target.close)
        bed = Dumbbell("ccc-moves", hosts={"b": source.pid, "rcv": target.pid})
        stack.callback(bed.end)
        bed.make()
        service.add("web", "netns", bed.sender(0), "uplink", WEIGHTS["web"])
        service.await_connected("web", "libvirtd", "qemu")
        payload = out / "payload"
        stack.callback(payload.unlink, missing_ok=True)
        start(source, payload)
        bed.receive(seconds + 65)
        where = (f"qemu+tcp://{RECEIVER}/system", f"tcp://{RECEIVER}")
        virsh = source.host.start("virsh", "-q", "migrate", "--live", "moving", *where, stderr=subprocess.PIPE)
        until("the migration is coupled", lambda: any(coupled(service).values()), 60)
        flows = coupled(service)
        watch = bed.watch(seconds)
        bed.send(0, 1, TOGETHER_S, "cubic", after_s=ALONE_S)
        samples = json.loads(watch.communicate()[0])
        said = virsh.communicate(timeout=120)[1]
        if virsh.returncode or "running" not in target.host.run("virsh", "-q", "domstate", "moving"):
            raise RuntimeError(f"the domain did not arrive: {said}")
    return samples, flows


def empty() -> bool:
    return not any((cgroups.path(name) / "cgroup.procs").read_text() for name in ("libvirtd", "qemu"))


def coupled(service: Service) -> dict[str, int]:
    tenants = service.tenants()
    return {name: tenants[name]["coupled_flows"] for name in ("libvirtd", "qemu")}


def start(source: LibvirtHost, payload: Path) -> None:
    """The domain, in a cgroup that is not libvirtd's, as machine.slice is."""
    payload.write_bytes(os.urandom(PAYLOAD_BYTES))
    text = DOMAIN.format(emulator=artefacts.build("qemu"), payload=payload)
    source.host.run("virsh", "-q", "create", "/dev/stdin", stdin=text)
    move = f"cat /run/libvirt/qemu/moving.pid >{cgroups.path('qemu')}/cgroup.procs"
    source.host.run("sh", "-c", move)
