# SPDX-License-Identifier: GPL-2.0
"""The guest of the tests (guest-init.sh): it sends flows for ever and says what it sees."""

import re
from pathlib import Path

from testbed.bottleneck import ADDRESS, GUEST_ADDRESS
from testbed.host import Host
from testbed.qemu import Qemu, coupling_device, linux

FLOWS = 4
# Where the coupling device is plugged in.
BUS = "root1"
_MEMORY = "256M"
_PARAMETERS = "console=ttyS0 quiet panic=-1 mitigations=off tsc=unstable clocksource=acpi_pm"
_COMPLAINT = re.compile(r"^! .*(?:BUG|WARNING|Oops|no module|no algorithm).*$", re.M)
_SEEN = re.compile(r"^@ \S+ established (\d+) coupled (\d+) device (\d)\r?$", re.M)


class SendingGuest(Qemu):
    """A guest with so many flows, and its device if there is a `backend` for it.

    It falls asleep once it has been up for `sleep_at` seconds, and sends `plain` flows of
    uncoupled Reno beside the others; with `incoming` it waits for a migration."""

    def __init__(
        self,
        emulator: Path,
        image: Path,
        directory: Path,
        name: str,
        host: Host,
        *,
        backend: Path | None = None,
        incoming: bool = False,
        processors: int = 1,
        sleep_at: int | None = None,
        plain: int = 0,
        flows: int = FLOWS,
        network_card: str = "virtio-net-pci",
    ) -> None:
        self._migration = directory / f"{name}.migration"
        parameters = f"{_PARAMETERS} guest.to={ADDRESS} guest.address={GUEST_ADDRESS}"
        parameters += f" guest.flows={flows} guest.plain={plain}" + (f" guest.sleep={sleep_at}" if sleep_at else "")
        arguments = [
            *linux(image / "vmlinuz", image / "initrd", parameters, _MEMORY, processors),
            *("-netdev", f"tap,id=net,ifname={name},script=no,downscript=no"),
            *("-device", f"{network_card},netdev=net,mac=52:54:00:63:63:63,addr=2,romfile="),
            *("-device", f"pcie-root-port,id={BUS},addr=3,chassis=1"),
            *(coupling_device(backend, f",bus={BUS}") if backend else ()),
            *(("-incoming", "defer") if incoming else ()),
        ]
        super().__init__(emulator, arguments, directory, name, host)

    def sees(self) -> tuple[int, ...]:
        """What the guest said last: connections, coupled flows, and 1 if there is a device."""
        found = _SEEN.findall(self.console)
        return tuple(map(int, found[-1])) if found else (0, 0, 0)

    def complaints(self) -> list[str]:
        """What the guest's kernel and its init complain of."""
        return _COMPLAINT.findall(self.console)

    def listen(self) -> str:
        """Waits for a migration; its address."""
        uri = f"unix:{self._migration}"
        self.ask("migrate-incoming", uri=uri)
        return uri

    def migration(self) -> dict[str, object]:
        """State of the migration away from here."""
        state: dict[str, object] = self.ask("query-migrate")
        return state

    def plays(self) -> bool:
        """Whether its processors run."""
        return bool(self.ask("query-status")["status"] == "running")
