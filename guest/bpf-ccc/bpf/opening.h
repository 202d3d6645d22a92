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
	const struct ccc_grant *grant = &flow->grant;
	u32 most = CCC_OPENING_MAX;

	/* In slow start it is granted what its ACKs let the aggregate grow to. */
	if (grant->coupled)
		most = grant->flags & VIRTIO_CCC_L_SLOW_START ? 1 : grant->cwnd;
	return ccc_opening(tp->write_seq - tp->snd_una, tp->mss_cache, most);
}

/* Data is about to leave; one that takes a slot later than that has sent some. */
static inline void ccc_opening_begin(const struct sock *sk, struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	flow->report.opening = tp->packets_out ? 0 : ccc_opening_of(tp, flow);
	flow->report.cwnd_limited = !flow->report.opening;
}

/* More is known of what it is granted, or to send: others are told of news at once. */
static inline void ccc_opening_look(const struct sock *sk, struct ccc_flow *flow)
{
	u32 opening = ccc_opening_of(tcp_sk(sk), flow);

	flow->report.at_once |= opening != flow->report.opening;
	flow->report.opening = opening;
	flow->report.cwnd_limited = !opening;
}

/* An application writes while the first packets leave: of that no ACK tells in time. */
static inline bool ccc_opening_grew(const struct sock *sk,
				    const struct ccc_flow *flow)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	return ccc_opening_grows(flow->report.opening,
				 tp->write_seq - tp->snd_una, tp->mss_cache);
}

/*
 * An ACK has come.  Where the device answers late, what the flow had to send waits
 * for a window that it has not been granted in time; that is no limit either.
 */
static inline void ccc_opening_acked(const struct sock *sk, struct ccc_flow *flow)
{
	if (!flow->report.opening)
		return;
	flow->report.opening = ccc_opening_of(tcp_sk(sk), flow);
	if (flow->report.opening)
		flow->report.cwnd_limited = 0;
}

#endif /* CCC_BPF_OPENING_H */
