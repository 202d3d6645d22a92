# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Cgroups and network namespaces of this machine as tenants, in real time on its own kernel."""
