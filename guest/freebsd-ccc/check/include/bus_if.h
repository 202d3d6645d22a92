/* SPDX-License-Identifier: BSD-3-Clause */
/* For the compile check: generated in the kernel; nothing of it is used here. */
