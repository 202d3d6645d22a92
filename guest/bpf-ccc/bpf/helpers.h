/* SPDX-License-Identifier: GPL-2.0 */
/* libbpf's helpers, and what they need of the kernel's headers. */
#ifndef CCC_BPF_HELPERS_H
#define CCC_BPF_HELPERS_H

#include "common/platform.h"

typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;

/* As in <linux/bpf.h>, which needs more of the C library than there is. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>

#endif /* CCC_BPF_HELPERS_H */
