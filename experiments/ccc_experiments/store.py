# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Raw data of many runs, each done once whoever asks for it.

A run's directory is named by what decides its results: the scenario and the
digests of the kernel and the programs it uses. So figures share runs, a second
call does only what is new, and an interrupted one goes on where it stopped.
"""

import hashlib
import json
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from . import lab, tables
from .lab import PROJECT, Parts
from .scenario import Scenario


@dataclass
class Store:
    """The runs of one directory."""

    root: Path
    parts: Parts = field(default_factory=Parts.built)

    def run(self, scenarios: list[Scenario]) -> list[Path]:
        """Does the runs that are not there; returns the directories of all."""
        directories = [self.root / self.key(scenario) for scenario in scenarios]
        wanted = {d: s for s, d in zip(scenarios, directories) if not (d / "done").exists()}
        for directory in wanted:
            shutil.rmtree(directory, ignore_errors=True)
        lab.run_each([(s, d) for d, s in wanted.items()], self.parts, self._keep)
        return directories

    def key(self, scenario: Scenario) -> str:
        """Names what decides the results of a run."""
        decides = lab.decides(lab.content(scenario))
        digests = dict(self._digests)
        if not _uses_module(scenario):
            del digests["module"], digests["daemon"]
        if lab.is_hostile(scenario):
            digests["hostile_module"] = _digest(lab.hostile_module().read_bytes())
        return _digest(json.dumps([decides, digests], sort_keys=True).encode())[:16]

    def _keep(self, scenario: Scenario, raw: Path) -> None:
        meta = json.loads((raw / "meta.json").read_text())
        tables.keep(
            raw,
            {
                "command": "ccc-lab run scenario.json --out DIR",
                "scenario": json.loads((raw / "scenario.json").read_text()),
                "seed": scenario.seed,
                "revision": self._revision,
                "digests": self._digests,
                "meta": meta,
            },
        )
        for log in raw.glob("*.log"):
            log.unlink()
        (raw / "done").touch()

    @cached_property
    def _digests(self) -> dict[str, str]:
        files = vars(self.parts) | {"guest": self.parts.lab.with_name("ccc-lab-guest")}
        return {name: _digest(path.read_bytes()) for name, path in files.items()}

    @cached_property
    def _revision(self) -> str:
        """The project's revision, marked if the tree differs from it."""
        command = ("git", "describe", "--always", "--dirty", "--abbrev=12")
        done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
        # The digests say which programs it was, also in a tarball.
        return done.stdout.strip() if done.returncode == 0 else "unknown: no git clone"


def _uses_module(scenario: Scenario) -> bool:
    return scenario.coupled or any(vm.congestion_control == "ccc" for vm in scenario.vms)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
