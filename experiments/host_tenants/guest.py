# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A fresh Debian in a VM whose kernel is its own, with the agent and nothing else of ours.

Its first interface is the one that is logged in to; by the second it is a sender of a dumbbell.  Its
vsock device is vhost-device-vsock: these machines have no vhost-vsock.
"""

import socket
import subprocess
from pathlib import Path

from testbed import artefacts
from testbed.qemu import Qemu, coupling_device
from testbed.wait import until

from .dumbbell import PORT, RECEIVER, Dumbbell
from .service import TARGET

_CMDLINE = "root=LABEL=root rw console=ttyS0 net.ifnames=0 mitigations=off tsc=reliable quiet"
# An emulated machine on a busy one takes minutes.
_BOOT_S = 600.0
# What leaves a guest is what is on the wire.
_WHOLE = ",".join(f"{side}_{what}=off" for side in ("host", "guest") for what in ("tso4", "tso6", "ufo"))
_SSH = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR")
_TRAFFIC = Path(__file__).with_name("traffic.py")


class Guest:
    """Runs until it is closed."""

    def __init__(self, name: str, release: str, number: int, directory: Path, daemon: Path | None = None) -> None:
        """With the virtio device, too, if a socket of the daemon's is named; it has no driver at first."""
        self.name, self.release, self._number = name, release, number
        self.vsock = directory / f"{name}.vsock"
        files = artefacts.build(f"machine-{release}")
        self._key = directory / f"{name}.key"
        self._key.write_bytes((files / "key").read_bytes())
        self._key.chmod(0o600)
        self._port = _free_port()
        device = directory / f"{name}.vhost"
        log = (directory / f"{name}.vsock.log").open("w")
        vm = f"guest-cid={number + 3},socket={device},uds-path={self.vsock}"
        self._device = subprocess.Popen([artefacts.build("vsock"), "--vm", vm], stdout=log, stderr=log)
        until(f"{name}: its vsock device", device.exists)
        memory = "memory-backend-memfd,id=mem,size=1G,share=on"
        network = f"user,id=ssh,restrict=on,hostfwd=tcp:127.0.0.1:{self._port}-:22"
        self._qemu = Qemu(
            artefacts.build("qemu"),
            [
                *("-accel", "tcg,thread=multi", "-cpu", "max,-svm", "-smp", "1", "-m", "1G"),
                *("-machine", "q35,memory-backend=mem", "-object", memory, "-device", "virtio-rng-pci"),
                *("-kernel", files / "vmlinuz", "-initrd", files / "initrd", "-append", _CMDLINE),
                *("-drive", f"file={files}/disk.img,format=raw,if=virtio,snapshot=on"),
                *("-netdev", network, "-device", "virtio-net-pci,netdev=ssh"),
                *("-netdev", f"tap,id=out,ifname={self._tap},script=no,downscript=no"),
                *("-device", f"virtio-net-pci,netdev=out,csum=off,gso=off,{_WHOLE}"),
                *("-chardev", f"socket,id=vsock,path={device}", "-device", "vhost-user-vsock-pci,chardev=vsock"),
                *(coupling_device(daemon) if daemon else ()),
            ],
            directory,
            name,
        )  # fmt: skip

    @property
    def _tap(self) -> str:
        return f"ccc-tap{self._number}"

    def close(self) -> None:
        self._qemu.close()
        self._device.kill()
        self._device.wait()

    def boot(self, bed: Dumbbell) -> None:
        """Until it is a sender, with the agent running."""
        bed.plug(self._tap, self._number)
        until(f"{self.name}: sshd answers", lambda: self._ssh("true").returncode == 0, _BOOT_S, poll_s=2)
        gateway = f"10.1.{self._number + 1}.1"
        self.run(
            f"ip address add {bed.address(self._number)}/24 dev eth1; ip link set eth1 up;"
            f" ip route add 10.2.0.0/16 via {gateway} dev eth1;"
            " sysctl -qw net.ipv4.tcp_no_metrics_save=1"
        )
        self.put(TARGET / "ccc-bpf", "/usr/local/bin")
        self.put(_TRAFFIC, "/root")
        self.start_agent()

    def put(self, file: Path, directory: str) -> None:
        where = f"{directory}/{file.name}"
        self.run(f"cat >{where}; chmod +x {where}", file.read_bytes())

    def start_agent(self) -> None:
        self.run("systemctl reset-failed ccc-agent 2>/dev/null; systemd-run -qu ccc-agent ccc-bpf agent")

    def kill_agent(self) -> None:
        self.run("systemctl kill -s KILL ccc-agent; systemctl stop ccc-agent 2>/dev/null || true")

    def change_to_module(self) -> None:
        """From the agent to the module, as the image of other tests has it for the same kernel."""
        self.kill_agent()
        self.run("ccc-bpf unload")
        name = f"usr/lib/modules/{self.kernel()}/updates/dkms/ccc.ko"
        image = artefacts.build("image") / "root.squashfs"
        module = subprocess.run(["unsquashfs", "-cat", str(image), name], check=True, stdout=subprocess.PIPE).stdout
        self.run("cat >/root/ccc.ko; insmod /root/ccc.ko", module)

    def agent_log(self) -> str:
        return self.run("journalctl -qu ccc-agent -o cat")

    def kernel(self) -> str:
        return self.run("uname -r").strip()

    def send(self, flows: int, seconds: float, algorithm: str) -> subprocess.Popen:
        words = (RECEIVER, PORT, flows, seconds, algorithm)
        command = f"python3 /root/traffic.py send {' '.join(map(str, words))}"
        return subprocess.Popen([*self._login, command], stdin=subprocess.DEVNULL)

    @property
    def _login(self) -> tuple[str, ...]:
        return ("ssh", "-p", str(self._port), "-i", str(self._key), *_SSH, "root@127.0.0.1")

    def _ssh(self, command: str, stdin: bytes = b"") -> subprocess.CompletedProcess:
        return subprocess.run([*self._login, command], input=stdin, capture_output=True, timeout=300)

    def run(self, command: str, stdin: bytes = b"") -> str:
        """What a shell command in the guest prints."""
        done = self._ssh(command, stdin)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {command}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout.decode(errors="replace")


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]
