# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Whether README.md and each role's defaults have every variable of its argument specification."""

import sys
from pathlib import Path

import yaml

COLLECTION = Path(__file__).resolve().parents[1]


def faults() -> list[str]:
    """What is missing where."""
    readme = (COLLECTION / "README.md").read_text()
    found = []
    for role in sorted((COLLECTION / "roles").iterdir()):
        options = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
        defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
        found += [f"README.md: {name} is missing" for name in options if name not in readme]
        found += [f"{role.name}: {name} has a default and no specification" for name in defaults if name not in options]
        for name, option in options.items():
            if name not in defaults and not option.get("required"):
                found.append(f"{role.name}: {name} has no default")
            elif name in defaults and "default" in option and option["default"] != defaults[name]:
                found.append(f"{role.name}: {name} is specified as {option['default']}, and is {defaults[name]}")
    return found


if __name__ == "__main__":
    said = faults()
    print(*said, sep="\n")
    sys.exit(1 if said else 0)
