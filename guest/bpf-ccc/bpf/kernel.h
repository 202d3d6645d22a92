/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the program needs to know of the kernel's structures.  Only names count:
 * libbpf looks up where the running kernel has each field (CO-RE).
 */
#ifndef CCC_BPF_KERNEL_H
#define CCC_BPF_KERNEL_H

#include "helpers.h"

#define BPF_F_NO_PREALLOC	(1U << 0)
#define BPF_F_MMAPABLE		(1U << 10)

#define BPF_RB_NO_WAKEUP	(1ULL << 0)
#define BPF_RB_FORCE_WAKEUP	(1ULL << 1)

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define TCP_INIT_CWND		10
#define TCP_INFINITE_SSTHRESH	0x7fffffff
#define IFF_LOOPBACK		8
#define AF_INET6		10
#define SOL_TCP			6
#define TCP_CONGESTION		13
#define TCP_CONG_NON_RESTRICTED	1

enum {
	TCP_CA_Open,
	TCP_CA_Disorder,
	TCP_CA_CWR,
	TCP_CA_Recovery,
	TCP_CA_Loss,
};

enum tcp_ca_event {
	CA_EVENT_TX_START,
};

#define CA_ACK_ECE		(1 << 2)

enum {
	SK_PACING_NONE,
	SK_PACING_NEEDED,
	SK_PACING_FQ,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), \
			     apply_to = record)

struct net_device {
	unsigned int flags;
};

struct dst_entry {
	struct net_device *dev;
};

struct netns_ipv4 {
	u8 sysctl_tcp_min_tso_segs;
};

struct net {
	u64 net_cookie;
	struct netns_ipv4 ipv4;
};

typedef struct {
	struct net *net;
} possible_net_t;

struct in6_addr {
	u8 in6_u[16];
};

struct sock_common {
	__be32 skc_daddr;
	__be16 skc_dport;
	unsigned short skc_family;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct kernfs_node {
	u64 id;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
	struct cgroup *ancestors[];
};

struct sock_cgroup_data {
	struct cgroup *cgroup;
};

struct sock {
	struct sock_common __sk_common;
	struct dst_entry *sk_dst_cache;
	u32 sk_pacing_status;
	unsigned long sk_pacing_rate;
	unsigned long sk_max_pacing_rate;
	u32 sk_priority;
	struct sock_cgroup_data sk_cgrp_data;
};

struct inet_sock {
	struct sock sk;
	__be32 inet_saddr;
	__be16 inet_sport;
	u8 tos;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
	u32 icsk_rto;
	u8 icsk_ca_state:5;
	u8 icsk_retransmits;
	u64 icsk_ca_priv[13];
};

struct minmax_sample {
	u32 t;
	u32 v;
};

struct minmax {
	struct minmax_sample s[3];
};

struct tcp_rack {
	u32 rtt_us;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_una;
	u32 snd_nxt;
	u32 write_seq;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 packets_out;
	u32 max_packets_out;
	u32 sacked_out;
	u32 lost_out;
	u32 retrans_out;
	u32 delivered;
	u32 data_segs_out;
	u32 mss_cache;
	u32 srtt_us;
	u32 lsndtime;
	u32 tlp_high_seq;
	u64 tcp_mstamp;
	u64 tcp_clock_cache;
	u64 tcp_wstamp_ns;
	struct minmax rtt_min;
	struct tcp_rack rack;
	u8 is_cwnd_limited:1;
	u8 tlp_retrans:1;
};

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
};

struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	void (*set_state)(struct sock *sk, u8 new_state);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
#ifndef CCC_KERNEL_BEFORE_7_1
	void (*cwnd_event_tx_start)(struct sock *sk);
#endif
	void (*in_ack_event)(struct sock *sk, u32 flags);
	void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
	u32 (*min_tso_segs)(struct sock *sk);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	void (*release)(struct sock *sk);
	char name[16];
	u32 flags;
};

#pragma clang attribute pop

extern u32 tcp_reno_ssthresh(struct sock *sk) __ksym;
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) __ksym;
extern u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

/* Not there if CUBIC is a module that is not loaded. */
extern void cubictcp_init(struct sock *sk) __ksym __weak;
extern u32 cubictcp_recalc_ssthresh(struct sock *sk) __ksym __weak;
extern void cubictcp_cong_avoid(struct sock *sk, u32 ack,
				u32 acked) __ksym __weak;
extern void cubictcp_state(struct sock *sk, u8 new_state) __ksym __weak;
/* Until 7.0, and since 7.1. */
extern void cubictcp_cwnd_event(struct sock *sk,
				enum tcp_ca_event event) __ksym __weak;
extern void cubictcp_cwnd_event_tx_start(struct sock *sk) __ksym __weak;
extern void cubictcp_acked(struct sock *sk,
			   const struct ack_sample *sample) __ksym __weak;

static inline struct tcp_sock *tcp_sk(const struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static inline struct inet_connection_sock *inet_csk(const struct sock *sk)
{
	return (struct inet_connection_sock *)sk;
}

static inline struct inet_sock *inet_sk(const struct sock *sk)
{
	return (struct inet_sock *)sk;
}

static inline u8 ca_state(const struct sock *sk)
{
	return BPF_CORE_READ_BITFIELD(inet_csk(sk), icsk_ca_state);
}

static inline bool tcp_in_slow_start(const struct tcp_sock *tp)
{
	return tp->snd_cwnd < tp->snd_ssthresh;
}

static inline u32 tcp_packets_in_flight(const struct tcp_sock *tp)
{
	return tp->packets_out - (tp->sacked_out + tp->lost_out) +
	       tp->retrans_out;
}

static inline bool tcp_is_cwnd_limited(const struct sock *sk)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return true;
	return tcp_in_slow_start(tp) && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/*
 * Whether data is on its way that was not acknowledged.  Before Linux 6.16 TCP counts
 * what an ACK acknowledges only after in_ack_event().
 */
static inline bool tcp_has_sent(const struct tcp_sock *tp)
{
	return tp->packets_out && tp->snd_una != tp->snd_nxt;
}

/* Whether there is data that was never sent. */
static inline bool tcp_has_unsent(const struct tcp_sock *tp)
{
	return tp->write_seq != tp->snd_nxt;
}

static inline bool seq_before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

#endif /* CCC_BPF_KERNEL_H */
