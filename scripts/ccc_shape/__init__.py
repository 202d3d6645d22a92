# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The shape of a tree, in numbers: see `scripts/shape --help`."""
