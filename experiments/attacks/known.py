# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Bounds that do not hold so far, each with what was measured and a floor."""

from ccc_experiments.scores import Known

KNOWN: dict[str, Known] = {}
