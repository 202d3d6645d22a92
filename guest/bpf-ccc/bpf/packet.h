/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The headers of a packet, from that of IP on; each byte is a guest's.
 */
#ifndef CCC_BPF_PACKET_H
#define CCC_BPF_PACKET_H

#include "helpers.h"
#include "tap.h"

#define BPF_NOEXIST	1

/* As far as it is used. */
struct __sk_buff {
	u32 len;
	u32 pkt_type;
	u32 mark;
	u32 queue_mapping;
	u32 protocol;
};

#define ETH_P_IP	0x0800
#define ETH_P_IPV6	0x86dd
#define IPPROTO_TCP	6
#define IP_FRAGMENT	0x3fff	/* more follow, or some were before */

struct ipv4_header {
	u8 version_ihl;
	u8 tos;
	u16 tot_len;
	u16 id;
	u16 frag_off;
	u8 ttl;
	u8 protocol;
	u16 check;
	u8 saddr[4];
	u8 daddr[4];
};

struct ipv6_header {
	u32 flow;
	u16 payload_len;
	u8 nexthdr;
	u8 hop_limit;
	u8 saddr[16];
	u8 daddr[16];
};

struct tcp_header {
	u16 source;
	u16 dest;
	u32 seq;
	u32 ack_seq;
	u8 doff;	/* words, in the upper half */
	u8 flags;
};

/* Where TCP begins and ends in a packet. */
struct tcp_part {
	u32 begin;	/* 0: there is none */
	u32 end;
};

/*
 * Ethernet pads short packets.  One whose length does not fit into its header,
 * which has 0 then, is no short one.
 */
static inline u32 without_padding(struct __sk_buff *skb, u32 told)
{
	return told && told < skb->len ? told : skb->len;
}

static inline struct tcp_part
tcp_in_ipv4(struct __sk_buff *skb, struct tap_flow *flow)
{
	struct tcp_part none = {};
	struct ipv4_header ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) ||
	    ip.protocol != IPPROTO_TCP ||
	    ip.frag_off & bpf_htons(IP_FRAGMENT))
		return none;
	__builtin_memcpy(flow->saddr, ip.saddr, sizeof(ip.saddr));
	__builtin_memcpy(flow->daddr, ip.daddr, sizeof(ip.daddr));
	flow->family = 4;
	return (struct tcp_part){
		.begin = (ip.version_ihl & 15) * 4,
		.end = without_padding(skb, bpf_ntohs(ip.tot_len)),
	};
}

/* One with further headers counts as no TCP. */
static inline struct tcp_part
tcp_in_ipv6(struct __sk_buff *skb, struct tap_flow *flow)
{
	struct tcp_part none = {};
	u32 told = 0;
	struct ipv6_header ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) ||
	    ip.nexthdr != IPPROTO_TCP)
		return none;
	__builtin_memcpy(flow->saddr, ip.saddr, sizeof(ip.saddr));
	__builtin_memcpy(flow->daddr, ip.daddr, sizeof(ip.daddr));
	flow->family = 6;
	if (ip.payload_len)
		told = sizeof(ip) + bpf_ntohs(ip.payload_len);
	return (struct tcp_part){
		.begin = sizeof(ip),
		.end = without_padding(skb, told),
	};
}

/* Whether it is TCP's and not a mere ACK; which flow's. */
static inline bool carries_tcp_data(struct __sk_buff *skb,
				    struct tap_flow *flow)
{
	struct tcp_header tcp;
	struct tcp_part part = {};

	if (skb->protocol == bpf_htons(ETH_P_IP))
		part = tcp_in_ipv4(skb, flow);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		part = tcp_in_ipv6(skb, flow);
	if (!part.begin ||
	    bpf_skb_load_bytes(skb, part.begin, &tcp, sizeof(tcp)))
		return false;
	flow->sport = tcp.source;
	flow->dport = tcp.dest;
	return part.end > part.begin + (tcp.doff >> 4) * 4;
}

#endif /* CCC_BPF_PACKET_H */
