# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Packages: those of this machine, and those of other Debian releases.

Of other releases packages are unpacked into the cache, never installed; the
machine's own package lists stay as they are.
"""

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ccc_build.artefact import cache, locked
from ccc_build.process import Failed, Word, output, say

TRIES = 3
PAUSE_S = 5.0
# How long others may hold apt's locks.
PATIENCE_S = 600
LISTS_AGE_S = 24 * 3600


def apt_get(*words: Word, cwd: Path | None = None) -> None:
    """apt-get, quiet and patient: waits for others who use apt, and tries again
    what a mirror that is slow or just being updated has broken."""
    # Lists that could not be fetched are an error, not a warning.
    options = (f"DPkg::Lock::Timeout={PATIENCE_S}", "Acquire::Retries=3", "APT::Update::Error-Mode=any")
    command = ["apt-get", "-qq", *(word for option in options for word in ("-o", option)), *words]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    deadline = time.monotonic() + PATIENCE_S
    tries = TRIES
    while True:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
        if done.returncode == 0:
            return
        # apt itself waits for dpkg's lock only, not for that of its lists.
        if "Could not get lock" not in done.stderr:
            tries -= 1
        if not tries or time.monotonic() > deadline or "Unable to locate package" in done.stderr:
            raise Failed(f"apt-get: {done.stderr.strip()}")
        time.sleep(PAUSE_S)


def require(*packages: str) -> None:
    """Installs the packages that are missing on this machine, or says what to do."""
    query = ["dpkg-query", "-W", "-f", "${Package} ${Status}\n", *packages]
    known = subprocess.run(query, capture_output=True, text=True).stdout
    installed = {line.split()[0] for line in known.splitlines() if line.endswith(" install ok installed")}
    missing = [package for package in packages if package not in installed]
    if not missing:
        return
    names = " ".join(missing)
    if os.geteuid() != 0:
        raise Failed(f"packages are missing: {names}; run as root: apt-get install {names}")
    say(f"packages: installing {names}")
    try:
        apt_get("update")
    except Failed as failed:
        # Lists of yesterday may do: what is missing then is told by the installation.
        say(f"packages: the lists could not be refreshed, those there are will do: {failed}")
    apt_get("install", "--no-install-recommends", "-y", *missing)


@dataclass(frozen=True)
class Suite:
    """A Debian release, from the mirror that this machine uses; its sources, if `kind` is "deb-src"."""

    name: str
    kind: str = "deb"

    @property
    def directory(self) -> Path:
        return cache() / (f"apt-{self.name}" if self.kind == "deb" else f"apt-{self.name}-source")

    @property
    def sources_list(self) -> Path:
        return self.directory / "sources.list"

    def newest(self, package: str) -> str:
        """The version of a package, or "" where the suite has none."""
        return self.versions(package).get(package, "")

    def versions(self, *packages: str) -> dict[str, str]:
        """The versions of packages, without those that the suite has not."""
        versions, package = {}, ""
        for line in self._ask("policy", *packages).splitlines():
            if not line.startswith(" "):
                package = line.rstrip(":")
            elif line.startswith("  Candidate:") and not line.endswith("(none)"):
                versions[package] = line.split()[1]
        return versions

    def source_versions(self, package: str) -> list[str]:
        """The versions of a source package."""
        lines = self._ask("showsrc", package).splitlines()
        return [line.split()[1] for line in lines if line.startswith("Version:")]

    def real_package(self, package: str, prefix: str) -> str:
        """The package that a meta-package depends on, or the package itself."""
        for line in self._ask("depends", package).splitlines():
            match line.split():
                case ["Depends:", name] if name.startswith(prefix):
                    return name
        return package

    def unpack(self, directory: Path, *packages: str) -> None:
        """Downloads packages and unpacks them below `directory`."""
        with tempfile.TemporaryDirectory(dir=directory) as downloads:
            apt_get(*self.options(), "download", *packages, cwd=Path(downloads))
            for package in Path(downloads).glob("*.deb"):
                output("dpkg-deb", "-x", package, directory)

    def source(self, directory: Path, package: str, version: str) -> None:
        """Unpacks a source package, with Debian's changes, as `directory`."""
        with tempfile.TemporaryDirectory(dir=directory.parent) as downloads:
            apt_get(*self.options(), "source", "--download-only", f"{package}={version}", cwd=Path(downloads))
            shutil.rmtree(directory, ignore_errors=True)
            output("dpkg-source", "--no-copy", "-x", *Path(downloads).glob("*.dsc"), directory)

    def _ask(self, *words: str) -> str:
        self._refresh()
        return output("apt-cache", *self.options(), *words)

    def options(self) -> list[Word]:
        """What makes apt's programs look at this release in place of the machine's own."""
        directory = self.directory
        settings = (
            f"Dir::State::Lists={directory}/lists",
            # What this machine has installed says nothing of another release.
            f"Dir::State::status={directory}/installed",
            f"Dir::Etc::SourceList={self.sources_list}",
            "Dir::Etc::SourceParts=-",
            f"Dir::Cache={directory}",
            f"Dir::Cache::Archives={directory}/archives",
            "APT::Sandbox::User=root",
        )
        return [word for setting in settings for word in ("-o", setting)]

    def _fresh(self) -> bool:
        stamp = self.directory / "refreshed"
        complete = stamp.exists() and self.sources_list.exists() and (self.directory / "installed").exists()
        return complete and time.time() - stamp.stat().st_mtime < LISTS_AGE_S

    def _refresh(self) -> None:
        """Once a day is enough, and a mirror that cannot be reached no reason to do
        without what is built already."""
        if self._fresh():
            return
        with locked(self.directory):
            if self._fresh():
                return
            for name in ("lists/partial", "archives/partial"):
                (self.directory / name).mkdir(parents=True, exist_ok=True)
            (self.directory / "installed").touch()
            self.sources_list.write_text(
                f"{self.kind} [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror()} {self.name} main\n"
            )
            try:
                apt_get(*self.options(), "update")
                (self.directory / "refreshed").touch()
            except Failed as failed:
                say(f"{self.name}: the package lists could not be refreshed, those there are will do: {failed}")


def mirror() -> str:
    """The Debian mirror that this machine uses."""
    sites = output("apt-get", "indextargets", "--format", "$(SITE)", "Created-By: Packages", "Origin: Debian")
    for site in sites.split():
        if "security" not in site:
            return site
    raise Failed("no Debian mirror among this machine's apt sources; run 'apt-get update' first")
