/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What a flow says that it wants when it begins, or comes back, before its ACKs
 * tell: see common/opening.h.
 */
#ifndef CCC_BPF_OPENING_H
#define CCC_BPF_OPENING_H

#include "common/opening.h"
#include "grant.h"

/* Packets that it has to send; 0 if its window is the limit. */
static inline u32 ccc_opening_of(const struct tcp_sock *tp,
				 const struct ccc_flow *flow)
{
	return ccc_opening(tp->write_seq - tp->snd_una, tp->mss_cache,
			   flow->grant.coupled ? flow->grant.cwnd :
						 CCC_OPENING_MAX);
}

static inline void note_opening(struct ccc_flow *flow, u32 packets)
{
	flow->report.opening = packets;
	flow->report.cwnd_limited = !packets;
}

/* Data is about to leave; one that takes a slot later than that has sent some. */
static inline void ccc_opening_begin(const struct sock *sk, struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	note_opening(flow, tp->packets_out ? 0 : ccc_opening_of(tp, flow));
}

/* More is known of what it is granted, or has to send: others are told at once. */
static inline void ccc_opening_look(const struct sock *sk, struct ccc_flow *flow)
{
	u32 before = flow->report.opening;

	note_opening(flow, ccc_opening_of(tcp_sk(sk), flow));
	flow->report.at_once |= flow->report.opening != before;
}

/* It has lost a packet: its window is the limit until recovery is over. */
static inline void ccc_opening_end(struct ccc_flow *flow)
{
	if (flow->report.opening)
		note_opening(flow, 0);
}

/* An application writes while the first packets leave: no ACK tells of that in time. */
static inline bool ccc_opening_grew(const struct sock *sk,
				    const struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return ccc_opening_grows(flow->report.opening,
				 tp->write_seq - tp->snd_una, tp->mss_cache);
}

/*
 * An ACK has come.  Where the device answers late, what the flow had to send waits
 * for a window that it was not granted in time; that is no limit either.
 */
static inline void ccc_opening_acked(const struct sock *sk, struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!flow->report.opening)
		return;
	/* A part of a segment that Nagle holds back uses no larger window. */
	flow->report.opening = tp->write_seq - tp->snd_nxt < tp->mss_cache ?
				       0 : ccc_opening_of(tp, flow);
	if (flow->report.opening)
		flow->report.cwnd_limited = 0;
}

#endif /* CCC_BPF_OPENING_H */
