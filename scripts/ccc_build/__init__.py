# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Builds what takes long, once for everything that it is made from.

`scripts/build ARTEFACT` is this package for the command line.
"""
