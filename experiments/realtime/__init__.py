# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Experiments in real time, on libvirt's QEMU domains of the test bed."""
