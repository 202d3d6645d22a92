# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The kit of attacks: what one VM can do to others, on real kernels."""
