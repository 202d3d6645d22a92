# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Goals of speed that are known not to be reached; the reasons stand in docs/performance.md."""

from .scores import Known

KNOWN: dict[str, Known] = {}
