# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The figures, one a file: its name with `-` for `_`, its `FIGURE` in it."""

import importlib
import pkgutil

from ccc_experiments.figure import Figure


def names() -> list[str]:
    """All figures."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name.replace("_", "-") for name in modules if not name.startswith("_"))


def load(name: str) -> Figure:
    """One figure."""
    return importlib.import_module(f"{__name__}.{name.replace('-', '_')}").FIGURE
