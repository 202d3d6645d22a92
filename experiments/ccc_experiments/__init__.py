# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Experiments on the virtual-time laboratory: cases, measures, scores, plots."""
