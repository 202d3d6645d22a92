/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which sockets are flows of a tenant.
 *
 * Coupled are those that leave the machine by the bottleneck: a flow over the
 * loopback device does not.
 */
#ifndef CCC_BPF_FLOW_H
#define CCC_BPF_FLOW_H

#include "kernel.h"
#include "table.h"

/* How often a flow without a slot looks for one. */
#define CCC_LOOK_US		100000u
/* Levels of cgroups above a socket's that may be a tenant. */
#define CCC_CGROUP_LEVELS	16

struct ccc_table_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(struct ccc_table));
};

/* By the tenant's number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, CCC_TENANTS);
	__type(key, u32);
	__array(values, struct ccc_table_map);
} ccc_tables SEC(".maps");

/* Tenants by the number of a cgroup, and by the cookie of a namespace. */
struct ccc_number_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CCC_TENANTS);
	__type(key, u64);
	__type(value, u32);
};

struct ccc_number_map ccc_cgroups SEC(".maps");
struct ccc_number_map ccc_netns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} ccc_messages SEC(".maps");

/*
 * What a socket knows, behind the inner algorithm's part of its private area
 * (60 bytes are CUBIC's).
 */
struct ccc_sock {
	u64 table_id;
	u64 look_us;		/* when to look for a slot again */
	u32 tenant;
	u32 slot;
	u32 generation;		/* 0: it has no slot */
	u8 cubic;
	u8 sender;		/* has sent data */
	/* What spares others a look at the flow. */
	u8 rated;		/* ccc_min_tso_segs() has to look at the flow */
	u8 watched;		/* by ccc_recovery_watch(), at the next ACK, too */
	u8 settled;		/* by cong_avoid(), beyond what quiet.h looks at */
	u8 timed;		/* TCP's pacing timer is on for us */
	u32 parked;		/* the generation of a slot that may be another's */
};

static inline struct ccc_sock *ccc_sk(const struct sock *sk)
{
	return (struct ccc_sock *)&inet_csk(sk)->icsk_ca_priv[8];
}

static inline struct ccc_table *ccc_table_of(u32 tenant)
{
	void *map = bpf_map_lookup_elem(&ccc_tables, &tenant);
	u32 first = 0;

	return map ? bpf_map_lookup_elem(map, &first) : NULL;
}

static inline struct ccc_flow *ccc_flow_at(struct ccc_table *table, u32 slot)
{
	slot &= CCC_SLOTS - 1;
	barrier_var(slot);
	return &table->flow[slot & (CCC_SLOTS - 1)];
}

static inline u32 ccc_slot_of(const struct ccc_flow *flow)
{
	u32 slot = flow->slot;

	barrier_var(slot);
	return slot & (CCC_SLOTS - 1);
}

/*
 * TCP no longer waits for its timer, unless the socket's owner has set a rate
 * meanwhile.  A time to send at that nobody waits for would make the RTT too short:
 * it is waited for, also where the socket is not ours any more.
 */
static inline void ccc_timer_off(struct sock *sk)
{
	struct ccc_sock *csk = ccc_sk(sk);

	if (!csk->timed ||
	    tcp_sk(sk)->tcp_wstamp_ns > tcp_sk(sk)->tcp_clock_cache)
		return;
	csk->timed = 0;
	if (sk->sk_max_pacing_rate == ~0UL &&
	    sk->sk_pacing_status == SK_PACING_NEEDED)
		sk->sk_pacing_status = SK_PACING_NONE;
}

static inline u64 *ccc_word_of(u64 *bits, u32 slot)
{
	slot &= CCC_SLOTS - 1;
	barrier_var(slot);
	return &bits[(slot & (CCC_SLOTS - 1)) / 64];
}

static inline u64 ccc_bit_of(u32 slot)
{
	return 1ull << (slot & 63);
}

/*
 * A message may be lost: the loader then has the device look at every slot.  Only
 * one that is urgent wakes the loader, which costs as much as hundreds of ACKs: it
 * looks by itself while there are messages.
 */
static inline void ccc_tell(struct ccc_table *table, u16 op, u32 slot,
			    u32 generation, bool urgent)
{
	u64 flags = urgent ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
	struct ccc_message message = {
		.tenant = table->control.tenant,
		.doorbell = {
			.op = op,
			.slot = slot,
			.generation = generation,
		},
	};

	if (bpf_ringbuf_output(&ccc_messages, &message, sizeof(message), flags))
		__sync_fetch_and_add(&table->control.lost, 1);
}

/*
 * The number of the tenant whose cgroup the socket's is, or is below, the nearest;
 * else that of its namespace's; less than 0: none.
 */
__weak int ccc_tenant_of(u64 cgroup, u64 cookie)
{
	struct cgroup *own = (struct cgroup *)cgroup, *ancestor = NULL;
	int i, level = own ? BPF_CORE_READ(own, level) : -1;
	u32 *tenant;
	u64 id;

	for (i = 0; i < CCC_CGROUP_LEVELS && level >= 0; i++, level--) {
		bpf_core_read(&ancestor, sizeof(ancestor),
			      &own->ancestors[level]);
		id = BPF_CORE_READ(ancestor, kn, id);
		tenant = bpf_map_lookup_elem(&ccc_cgroups, &id);
		if (tenant)
			return *tenant;
	}
	tenant = bpf_map_lookup_elem(&ccc_netns, &cookie);
	return tenant ? *tenant : -1;
}

/* By the route that the socket has at present. */
static inline bool ccc_in_scope(const struct sock *sk)
{
	struct dst_entry *dst = sk->sk_dst_cache;

	return dst && !(BPF_CORE_READ(dst, dev, flags) & IFF_LOOPBACK);
}

static inline bool ccc_table_is_live(const struct ccc_table *table, u64 now_us)
{
	return *(volatile u32 *)&table->status.status ==
		       VIRTIO_CCC_EXTENT_ACCEPTED &&
	       now_us < *(volatile u64 *)&table->control.lease_us;
}

#endif /* CCC_BPF_FLOW_H */
