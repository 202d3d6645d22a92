/* SPDX-License-Identifier: BSD-3-Clause */
/* As config(8) writes it for a kernel that has it. */
#define	INET6	1
