# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Daemons, guests and networks for tests and experiments; README.md says how to use them."""
