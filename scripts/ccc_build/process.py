# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Other programs, and what is said of them on standard error."""

import os
import re
import subprocess
import sys
from pathlib import Path

ERROR = re.compile(r"\berror\b|undefined|FAILED|\*\*\*", re.IGNORECASE)
SHOWN_LINES = 20
Word = str | Path


class Failed(Exception):
    """A build cannot be done; the text says why, and what to do."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def environment() -> dict[str, str]:
    """Ours without make's own variables: what we build is not part of its run."""
    return {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}


def output(*words: Word, cwd: Path | None = None) -> str:
    """What a program prints. Raises Failed with its words if it fails."""
    done = subprocess.run(words, cwd=cwd, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{Path(words[0]).name}: {done.stderr.strip() or f'ended with status {done.returncode}'}")
    return done.stdout


def run(*words: Word, log: Path, cwd: Path | None = None, progress: str = "", every: int = 200) -> None:
    """Runs a program; all that it says goes to `log`.

    With `progress`, a name, each `every` lines of it are a line on standard error.
    Raises Failed with its errors, or its last lines, if it fails.
    """
    with (
        log.open("w") as kept,
        subprocess.Popen(
            words, cwd=cwd, env=environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        ) as process,
    ):  # fmt: skip
        assert process.stdout
        try:
            for count, line in enumerate(process.stdout, 1):
                kept.write(line)
                if progress and count % every == 0:
                    # ninja counts for itself.
                    step = line.split()[0] if line.startswith("[") else f"{count} steps"
                    say(f"{progress}: {step}")
        except BaseException:
            process.terminate()
            raise
    if process.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()
        shown = [line for line in lines if ERROR.search(line)][:SHOWN_LINES] or lines[-SHOWN_LINES:]
        command = " ".join(map(str, words[:4]))
        raise Failed("\n".join([f"{command} ... failed with status {process.returncode}:", *shown, f"(log: {log})"]))


def compiler() -> str:
    """The compiler's version: what it compiles depends on it."""
    return output("gcc", "--version").split("\n", 1)[0] + "\n"
