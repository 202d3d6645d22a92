/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The program in user space: what it has of libbpf, whose headers bpf/kernel.h
 * then leaves out.  Included before any of bpf/.
 */
#ifndef CCC_TESTS_USER_H
#define CCC_TESTS_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define __BPF_HELPERS__
#define __BPF_CORE_READ_H__
#define __BPF_TRACING_H__
#define __BPF_ENDIAN__

/* Where each field is, is known here; clang has to have some attribute. */
#define preserve_access_index	annotate("")

#define SEC(name)
#define __ksym
#define __weak			__attribute__((weak))
#define __noinline		__attribute__((noinline))
#define __uint(name, value)	int (*name)[value]
#define __type(name, of)	of *name
#define __array(name, of)	of *name[]
#define BPF_PROG(name, ...)	name(__VA_ARGS__)

#define barrier()		asm volatile("" ::: "memory")
#define barrier_var(var)	asm volatile("" : "+r"(var))
#define bpf_ntohs(wire)		__builtin_bswap16(wire)
#define bpf_htonl(host)		__builtin_bswap32(host)

#define READ_ONE(from, one)		((from)->one)
#define READ_TWO(from, one, two)	((from)->one->two)
#define READ_WHICH(one, two, which, ...) which
#define BPF_CORE_READ(from, ...) \
	READ_WHICH(__VA_ARGS__, READ_TWO, READ_ONE)(from, __VA_ARGS__)
#define BPF_CORE_READ_BITFIELD(from, field)	((from)->field)
#define bpf_core_field_exists(field)		true
#define bpf_core_read(to, bytes, from)		memcpy(to, from, bytes)

static void *map_element(void *map, const void *key);
#define bpf_map_lookup_elem	map_element

static int tell(const void *message, uint64_t flags);
#define bpf_ringbuf_output(ring, message, bytes, flags) tell(message, flags)

/*
 * What others do before the next atomic instruction or barrier, which is an atomic
 * instruction where no __TARGET_ARCH_x86 is.
 */
static void meanwhile(void);

#define __sync_fetch_and_add(at, value) \
	(meanwhile(), __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST))
#define __sync_fetch_and_and(at, value) \
	(meanwhile(), __atomic_fetch_and(at, value, __ATOMIC_SEQ_CST))
#define __sync_fetch_and_or(at, value) \
	(meanwhile(), __atomic_fetch_or(at, value, __ATOMIC_SEQ_CST))

#endif /* CCC_TESTS_USER_H */
