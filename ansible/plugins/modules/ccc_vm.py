#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""A libvirt domain and its coupling, by libvirt's client and cccctl."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: ccc_vm
short_description: Couple the flows of a libvirt domain with those of others
version_added: 0.2.0
description:
  - Gives a libvirt domain the device of congestion control coupling, with its group, weight and the
    like in the domain's metadata, or takes them from it.
  - Runs C(cccctl attach) and C(cccctl detach) on the domain's host, which check what could not start,
    and undo what was done if a step fails. Whether that is needed is read from the domain's description.
  - Never starts, stops or restarts a domain.
author:
  - ccc maintainers (@ccc-coupling)
options:
  name:
    description: The domain's name. Not its id or UUID.
    type: str
    required: true
  state:
    description: Whether the domain has the device and its metadata, or neither.
    type: str
    choices: [present, absent]
    default: present
  group:
    description: Its bottleneck group, V(none) for no group. Left out, it stays as it is, V(default) at first.
    type: str
  weight:
    description: Its share, from 0.01 to 1000. Left out, it stays as it is, 1 at first.
    type: float
  coupled:
    description: Whether its flows are coupled, or left alone. Left out, it stays as it is, V(true) at first.
    type: bool
  tap:
    description:
      - The host's interface through which its packets come, for the group's C(enforce); V(none) for none.
      - No macvtap (libvirt's interfaces of type C(direct)), at which the daemon does not look.
      - Left out, it stays as it is, none at first.
    type: str
  floor_mbit:
    description: What it has at least of its group while it wants that, Mbit/s, from 0 to 1000000. Left out, it stays as it is.
    type: float
  cap_mbit:
    description: What it has at the most, Mbit/s, from 0.1 to 1000000, or C(none). Left out, it stays as it is.
    type: str
  vhost_socket:
    description: Where the daemon listens for it. Left out, it stays as it is, C(/run/ccc/vm/NAME.sock) at first.
    type: path
  emulator:
    description:
      - The program that its description is to name as <emulator>, from its next start on.
      - Left out, it stays as it is. It has to be a QEMU with the device for O(state=present).
    type: path
  live:
    description:
      - Also plug the device into the running domain, or unplug it there.
      - Without it a domain that runs has or loses the device at its next start; RV(restart_needed) says so.
      - A domain that does not run is changed for its next start.
    type: bool
    default: false
  uri:
    description: libvirt's URI.
    type: str
    default: qemu:///system
  timeout:
    description: Seconds after which a command of libvirt's or C(cccctl) that does not answer is ended.
    type: int
    default: 60
requirements:
  - cccctl, and virsh of Debian's libvirt-clients, on the domain's host
attributes:
  check_mode:
    description: Reads descriptions, and changes nothing.
    support: full
  diff_mode:
    description: The settings and the device before and after.
    support: full
"""

EXAMPLES = r"""
- name: Give alice three times the share of others behind the uplink
  ccc.coupling.ccc_vm:
    name: alice
    group: uplink
    weight: 3
    emulator: /usr/lib/ccc/qemu-system-x86_64

- name: Plug it into bob while he runs
  ccc.coupling.ccc_vm:
    name: bob
    group: uplink
    live: true

- name: Couple carol no more
  ccc.coupling.ccc_vm:
    name: carol
    state: absent
    emulator: /usr/bin/qemu-system-x86_64
"""

RETURN = r"""
settings:
  description: What the domain's metadata say afterwards; empty without any.
  returned: success
  type: dict
  sample: {group: uplink, weight: "3"}
running:
  description: Whether the domain runs.
  returned: success
  type: bool
attached:
  description: Whether the domain has the device at its next start; of a transient one, as it runs.
  returned: success
  type: bool
restart_needed:
  description: Whether what the domain runs with differs from its next start in the device or the emulator.
  returned: success
  type: bool
commands:
  description: What was done, or in check mode would be.
  returned: success
  type: list
  elements: str
"""

import os
import re
import tempfile
import xml.etree.ElementTree as ET

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.ccc.coupling.plugins.module_utils import description

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
# A cap may be none, too.
RANGES = {"weight": (0.01, 1000), "floor_mbit": (0, 1e6), "cap_mbit": (0.1, 1e6)}
SETTINGS = ("group", "weight", "coupled", "tap", "floor_mbit", "cap_mbit")


def text_of(value):
    """A setting as the metadata write it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return "%d" % value if value.is_integer() else repr(value)
    return value


def same(key, one, other):
    """Whether two texts of a setting say the same: a weight of 3 is one of 3.0, a group 10 is none 010."""
    try:
        return float(one) == float(other) if key in RANGES else one == other
    except (TypeError, ValueError):
        return one == other


class Domain:
    """A domain, as it is and as it is to be."""

    def __init__(self, module):
        self.module = module
        self.parameters = module.params
        self.name = module.params["name"]
        self.commands = []
        self.defined = False
        self.wanted = {key: text_of(self.parameters[key]) for key in SETTINGS if self.parameters[key] is not None}
        if self.parameters["vhost_socket"] is not None:
            self.wanted["socket"] = self.parameters["vhost_socket"]

    def virsh(self, *words, **more):
        return self.run(["virsh", "-q", "-c", self.parameters["uri"]] + list(words), **more)

    def run(self, words, check=True):
        """What a program prints; it does not hang, whatever the daemon does."""
        timeout = ["timeout", "--kill-after=5", str(self.parameters["timeout"])]
        code, out, err = self.module.run_command(timeout + words, environ_update={"LC_ALL": "C"})
        if code == 124:
            self.fail("%s: no answer within %d s; see journalctl -u ccc-vhost -u libvirtd" % (" ".join(words), self.parameters["timeout"]))
        if check and code != 0:
            self.fail("%s: %s" % (" ".join(words), (err or out).strip() or "status %d" % code))
        return out if code == 0 else None

    def fail(self, message):
        if self.defined:
            # What was done before is undone, as cccctl undoes its own.
            self.defined = False
            if self.define(self.text, check=False) is None:
                message += "; nor could its description be put back, which is now one with the emulator " + str(self.parameters["emulator"])
        self.module.fail_json(msg="domain %s: %s" % (self.name, message), commands=self.commands)

    def read(self):
        """Its descriptions: at its next start, and as it runs."""
        # virsh takes a name of digits for the id of another domain.
        self.id = self.name
        # And fills names up with blanks, which another's may end with.
        lines = [line.split(None, 1) for line in self.virsh("list", "--all", "--uuid", "--name").splitlines()]
        like = [line[0] for line in lines if len(line) == 2 and line[1].strip() == self.name]
        known = [uuid for uuid in like if self.virsh("domname", uuid).rstrip("\n") == self.name]
        if not known:
            if self.parameters["state"] == "absent":
                return False
            self.fail("libvirt has no such domain; define it first (virsh define, virt-install), or correct the name")
        self.id = known[0]
        # With secrets, so that it may be defined anew.
        self.text = self.virsh("dumpxml", "--inactive", "--security-info", self.id)
        self.inactive = ET.fromstring(self.text)
        self.running = self.virsh("domstate", self.id).strip() not in ("shut off", "crashed", "")
        self.live = ET.fromstring(self.virsh("dumpxml", self.id)) if self.running else None
        return True

    def state(self):
        """What of it is of interest, for a diff."""
        said = {"next start": self.part(self.inactive)}
        if self.live is not None:
            said["running"] = self.part(self.live)
        return said

    @staticmethod
    def part(root):
        return {
            "device": description.has_device(root),
            "emulator": description.emulator(root),
            "settings": description.settings(root) or {},
        }

    def differs(self, root):
        """Which wanted settings a description has not."""
        has = description.settings(root)
        if has is None:
            return self.wanted or {"group": "default"}
        # No cap is not written.
        has = dict({"cap_mbit": "none"}, **has)
        return {key: value for key, value in self.wanted.items() if not same(key, has.get(key), value)}

    def steps(self):
        """The commands that make it as it is to be; none if it is."""
        present, live = self.parameters["state"] == "present", self.parameters["live"] and self.running
        emulator = self.parameters["emulator"]
        steps = []
        other = [["emulator", emulator]] if emulator and description.emulator(self.inactive) != emulator else []
        next_has, now_has = description.has_device(self.inactive), bool(self.running and description.has_device(self.live))
        if present:
            todo = not next_has or self.differs(self.inactive) or (live and not now_has)
            if todo or (now_has and self.differs(self.live)):
                steps.append(self.attach(live and not now_has))
            # The device is for an emulator that has it, and only for one.
            return other + steps
        if next_has or description.settings(self.inactive) is not None or (live and now_has):
            steps.append(["cccctl", "--connect", self.parameters["uri"], "detach", self.name] + (["--live"] if live else []))
        return steps + other

    def attach(self, live):
        command = ["cccctl", "--connect", self.parameters["uri"], "attach", self.name]
        for key, value in sorted(self.wanted.items()):
            option = "vhost-socket" if key == "socket" else key.replace("_", "-")
            command += ["--" + option, value]
        return command + (["--live"] if live else [])

    def refuse(self, steps):
        """Ends before the first of the steps if one of them cannot be done."""
        if ["emulator", self.parameters["emulator"]] not in steps:
            return
        # In check mode it may be what the role host would install.
        if not self.module.check_mode and not os.access(self.parameters["emulator"], os.X_OK):
            mend = "install qemu-system-x86-ccc (role host)" if self.parameters["state"] == "present" else "name one that is installed"
            self.fail("invalid emulator: expected a program, got %s; %s" % (self.parameters["emulator"], mend))
        # Another emulator would make it one that libvirt keeps.
        if "Persistent: yes" not in " ".join(self.virsh("dominfo", self.id).split()):
            self.fail("it is transient, so libvirt forgets what is changed; make it persistent first (virsh define)")

    def do(self, step):
        if step[0] != "emulator":
            self.run(step)
            return
        self.read()
        try:
            text = description.with_emulator(self.text, step[1])
        except ValueError as error:
            self.fail(str(error))
        self.define(text)
        self.defined = True

    def define(self, text, check=True):
        """What virsh says of it; without `check` None where it does not define it."""
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(text)
            file.flush()
            return self.virsh("define", file.name, check=check)

    def expected(self, steps):
        """The state after the steps, as far as is known without doing them."""
        said = self.state()
        live = self.parameters["live"]
        for part in [said["next start"]] + ([said["running"]] if "running" in said and (live or said["running"]["device"]) else []):
            self.change(part, part is said["next start"] or live)
        if any(step[0] == "emulator" for step in steps):
            said["next start"]["emulator"] = self.parameters["emulator"]
        return said

    def change(self, part, device):
        if self.parameters["state"] == "present":
            part["settings"] = dict(part["settings"], **self.wanted)
            part["device"] = part["device"] or device
        elif device:
            part["settings"], part["device"] = {}, False


def check(module):
    """Refuses what cccctl would, before anything is asked or done."""
    name = module.params["name"]
    if not NAME.match(name):
        module.fail_json(msg="invalid name: expected 1 to 64 of letters, digits, '.', '_' and '-', got '%s'; rename the domain (virsh domrename)" % name)
    for key, (least, most) in RANGES.items():
        value = module.params[key]
        if value is None or (key == "cap_mbit" and value == "none"):
            continue
        try:
            holds = least <= float(value) <= most
        except ValueError:
            holds = False
        if not holds:
            unit = ", without a unit, or none" if key == "cap_mbit" else ""
            module.fail_json(
                msg="domain %s: invalid %s: expected a number from %s to %s%s, got %s"
                % (name, key, text_of(float(least)), text_of(float(most)), unit, text_of(value))
            )
    socket = module.params["vhost_socket"]
    if socket is not None and (not socket.startswith("/") or len(socket) > 107):
        module.fail_json(msg="domain %s: invalid vhost_socket: expected an absolute path of at most 107 bytes, got %s" % (name, socket))


def missing(module):
    """Programs that the host has not."""
    return [program for program in ("virsh", "cccctl") if not module.get_bin_path(program)]


def main():
    module = AnsibleModule(
        argument_spec=dict(
            name=dict(type="str", required=True),
            state=dict(type="str", choices=["present", "absent"], default="present"),
            group=dict(type="str"),
            weight=dict(type="float"),
            coupled=dict(type="bool"),
            tap=dict(type="str"),
            floor_mbit=dict(type="float"),
            cap_mbit=dict(type="str"),
            vhost_socket=dict(type="path"),
            emulator=dict(type="path"),
            live=dict(type="bool", default=False),
            uri=dict(type="str", default="qemu:///system"),
            timeout=dict(type="int", default=60),
        ),
        supports_check_mode=True,
    )
    check(module)
    domain = Domain(module)
    lacking = missing(module)
    if lacking:
        # In check mode on a host that has nothing yet all would be done.
        if not module.check_mode:
            domain.fail("%s is not installed on this host; run the role ccc.coupling.host first" % " and ".join(lacking))
        present = module.params["state"] == "present"
        after = {"next start": {"device": True, "settings": domain.wanted}} if present else {}
        module.exit_json(changed=present, settings=domain.wanted, running=False, attached=present, restart_needed=False,
                         commands=[" ".join(domain.attach(False))] if present else [], diff={"before": {}, "after": after})
    finish(module, domain)


def finish(module, domain):
    """Does what is to be done, and tells it."""
    if not domain.read():
        module.exit_json(changed=False, settings={}, running=False, attached=False, restart_needed=False, commands=[])
    before, steps = domain.state(), domain.steps()
    domain.commands = [" ".join(step) for step in steps]
    after = domain.expected(steps) if steps else before
    if steps:
        domain.refuse(steps)
    if steps and not module.check_mode:
        for step in steps:
            domain.do(step)
        domain.read()
        after = domain.state()
    part = after["next start"]
    running = after.get("running", part)
    module.exit_json(
        changed=bool(steps), settings=part["settings"], running=domain.running, attached=part["device"],
        restart_needed=running["device"] != part["device"] or running["emulator"] != part["emulator"],
        commands=domain.commands, diff={"before": before, "after": after},
    )


if __name__ == "__main__":
    main()
