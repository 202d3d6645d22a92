# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The two versions of the packages that are tested."""

OLD, NEW = "0.1.0", "0.2.0~test"
# What the older packages are made of: the last commit of the release before.
RELEASE_BEFORE = "1a4ab2d"
