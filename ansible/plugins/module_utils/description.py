# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What of ours is in a libvirt domain's description."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import json
import xml.etree.ElementTree as ET

WANTED = "{urn:ccc:vm:1}vm"
PLUGGED = "{urn:ccc:plugged:1}device"
ARGUMENT = "{http://libvirt.org/schemas/domain/qemu/1.0}commandline/{http://libvirt.org/schemas/domain/qemu/1.0}arg"
DEVICE = "vhost-user-ccc-pci"


def settings(root):
    """The attributes of its <ccc:vm>; None without one."""
    element = root.find("metadata/" + WANTED)
    return None if element is None else dict(element.attrib)


def emulator(root):
    """The program that runs it."""
    return (root.findtext("devices/emulator") or "").strip()


def has_device(root):
    """Whether it has the device: on its command line, or where it was plugged since."""
    plugged = root.find("metadata/" + PLUGGED)
    if plugged is not None:
        return "bus" in plugged.attrib
    return any(_is_device(argument.get("value", "")) for argument in root.findall(ARGUMENT))


def _is_device(argument):
    """Devices are written as JSON, by hand perhaps in QEMU's own way."""
    try:
        return json.loads(argument).get("driver") == DEVICE
    except (ValueError, AttributeError):
        return argument.split(",")[0] == DEVICE


def with_emulator(text, program):
    """The description with another emulator, all else as it was to the byte."""
    begin = text.rfind("<emulator>")
    end = text.find("</emulator>", begin)
    if begin < 0 or end < 0:
        raise ValueError("invalid description: expected an <emulator>, got none")
    changed = text[: begin + len("<emulator>")] + _escaped(program) + text[end:]
    if emulator(ET.fromstring(changed)) != program:
        raise ValueError("invalid description: expected one <emulator> in its <devices>, got another there")
    return changed


def _escaped(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
