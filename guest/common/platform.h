/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the arithmetic beside it needs from where it is built: in the Linux
 * kernel the kernel's own; in FreeBSD's, in BPF and in user space the same names
 * made from plain C.
 */
#ifndef CCC_PLATFORM_H
#define CCC_PLATFORM_H

#ifdef __KERNEL__
#include <linux/limits.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/time64.h>
#include <linux/types.h>
#else
#ifdef _KERNEL		/* FreeBSD's */
#include <sys/types.h>
#include <sys/stdint.h>
#else
#include <stdbool.h>
#include <stdint.h>
#endif

#define VIRTIO_CCC_NO_TYPES

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#define U8_MAX		UINT8_MAX
#define U16_MAX		UINT16_MAX
#define U32_MAX		UINT32_MAX
#define U64_MAX		UINT64_MAX
#define S32_MAX		INT32_MAX
#define S64_MAX		INT64_MAX
#define USEC_PER_SEC	1000000L

/* Each argument is evaluated once. */
#define min_t(type, a, b) ({						\
	type _min_a = (a), _min_b = (b);				\
									\
	_min_a < _min_b ? _min_a : _min_b; })
#define max_t(type, a, b) ({						\
	type _max_a = (a), _max_b = (b);				\
									\
	_max_a > _max_b ? _max_a : _max_b; })
#define clamp_t(type, v, low, high)					\
	min_t(type, max_t(type, v, low), high)

#define div_u64(a, b)		((u64)(a) / (u32)(b))
#define div64_u64(a, b)		((u64)(a) / (u64)(b))

#ifdef __bpf__
/* BPF passes five arguments at most, and has no division of signed numbers. */
#define inline inline __attribute__((always_inline))

static inline s64 div_s64(s64 a, s32 b)
{
	u64 quotient = (u64)(a < 0 ? -a : a) / (u32)b;

	return a < 0 ? -(s64)quotient : (s64)quotient;
}

/* Nor has it products of 128 bits. */
static inline u64 mul_u64_u64_shr(u64 a, u64 b, unsigned int shift)
{
	u64 a_high = a >> 32, a_low = (u32)a, b_high = b >> 32, b_low = (u32)b;
	u64 low = a_low * b_low;
	u64 middle = a_high * b_low + (low >> 32);
	u64 other = a_low * b_high + (u32)middle;
	u64 high = a_high * b_high + (middle >> 32) + (other >> 32);

	low = (other << 32) | (u32)low;
	if (shift >= 64)
		return high >> (shift - 64);
	return shift ? (low >> shift) | (high << (64 - shift)) : low;
}
#else
#define div_s64(a, b)		((s64)(a) / (s32)(b))

static inline u64 mul_u64_u64_shr(u64 a, u64 b, unsigned int shift)
{
	return (u64)(((__uint128_t)a * b) >> shift);
}
#endif /* __bpf__ */
#endif /* __KERNEL__ */

#include "virtio_ccc.h"

#endif /* CCC_PLATFORM_H */
