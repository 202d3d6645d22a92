// SPDX-License-Identifier: GPL-2.0
/*
 * What a VM sends, flow by flow: the filter of a packet socket at its tap.
 *
 * It counts and takes no packet.  A socket goes with the process that has it,
 * whatever ends that, and needs no queueing discipline, which there is one of,
 * and which the daemon needs where it holds VMs.
 */
#include "packet.h"
#include "tap.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TAP_FLOWS);
	__type(key, struct tap_flow);
	__type(value, u64);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TAP_KINDS);
	__type(key, u32);
	__type(value, u64);
} totals SEC(".maps");

static inline void count(u32 kind, u32 bytes)
{
	u64 *total = bpf_map_lookup_elem(&totals, &kind);

	if (total)
		__sync_fetch_and_add(total, bytes);
}

static inline void count_flow(const struct tap_flow *flow, u32 bytes)
{
	u64 *known = bpf_map_lookup_elem(&flows, flow), first = bytes;

	/* Another processor may have been first. */
	if (!known && bpf_map_update_elem(&flows, flow, &first, BPF_NOEXIST))
		known = bpf_map_lookup_elem(&flows, flow);
	if (known)
		__sync_fetch_and_add(known, bytes);
}

SEC("socket")
int count_tap(struct __sk_buff *skb)
{
	struct tap_flow flow = {};

	if (carries_tcp_data(skb, &flow)) {
		count(TAP_TCP, skb->len);
		count_flow(&flow, skb->len);
	} else {
		count(TAP_OTHER, skb->len);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
