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

/* Where TCP begins in a packet of IPv4; 0 if it does not. */
static inline u32 tcp_in_ipv4(struct __sk_buff *skb, struct tap_flow *flow)
{
	struct ipv4_header ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) ||
	    ip.protocol != IPPROTO_TCP ||
	    ip.frag_off & bpf_htons(IP_FRAGMENT))
		return 0;
	__builtin_memcpy(flow->saddr, ip.saddr, sizeof(ip.saddr));
	__builtin_memcpy(flow->daddr, ip.daddr, sizeof(ip.daddr));
	flow->family = 4;
	return (ip.version_ihl & 15) * 4;
}

/* The same of IPv6; one with further headers counts as no TCP. */
static inline u32 tcp_in_ipv6(struct __sk_buff *skb, struct tap_flow *flow)
{
	struct ipv6_header ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) ||
	    ip.nexthdr != IPPROTO_TCP)
		return 0;
	__builtin_memcpy(flow->saddr, ip.saddr, sizeof(ip.saddr));
	__builtin_memcpy(flow->daddr, ip.daddr, sizeof(ip.daddr));
	flow->family = 6;
	return sizeof(ip);
}

/* Whether it is TCP's and not a mere ACK; which flow's. */
static inline bool carries_tcp_data(struct __sk_buff *skb,
				    struct tap_flow *flow)
{
	struct tcp_header tcp;
	u32 at = 0;

	if (skb->protocol == bpf_htons(ETH_P_IP))
		at = tcp_in_ipv4(skb, flow);
	else if (skb->protocol == bpf_htons(ETH_P_IPV6))
		at = tcp_in_ipv6(skb, flow);
	if (!at || bpf_skb_load_bytes(skb, at, &tcp, sizeof(tcp)))
		return false;
	flow->sport = tcp.source;
	flow->dport = tcp.dest;
	return skb->len > at + (tcp.doff >> 4) * 4;
}

#endif /* CCC_BPF_PACKET_H */
