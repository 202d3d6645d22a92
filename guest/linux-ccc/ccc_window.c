// SPDX-License-Identifier: GPL-2.0
/*
 * What the host grants, done: the window of a flow is its part of the aggregate's.
 */
#include "ccc_flow.h"

static u32 ccc_packets(const struct tcp_sock *tp, const struct ccc_slot *slot,
		       u64 level)
{
	const struct ccc_grant_view *view = &slot->view;
	u64 units = ccc_units(slot->priority, slot->srtt_us,
			      view->flags & VIRTIO_CCC_L_RATE);
	u32 share = ccc_share_packets(level, units, tp->mss_cache,
				      slot->offset + view->phase);

	return ccc_cap_packets(share, view->cap, tp->mss_cache);
}

/* A reduction that another flow has caused is one of this flow's twin too. */
static void ccc_follow(struct sock *sk, struct ccc_slot *slot)
{
	const struct tcp_congestion_ops *inner = ccc_inner_of(sk);

	slot->followed = slot->view.epoch;
	if (slot->charged) {
		slot->charged = false;
	} else if (slot->twin.cwnd) {
		ccc_twin_ssthresh(sk, &slot->twin, inner);
		ccc_twin_reduce(&slot->twin);
	} else {
		/* For what the algorithm remembers of it. */
		inner->ssthresh(sk);
	}
}

/* Read the grant; true if the flow is coupled, with its share up to date. */
bool ccc_read_share(struct sock *sk, struct ccc_slot *slot)
{
	bool coupled = slot->coupled;

	ccc_grant_refresh(slot);
	if (!slot->coupled) {
		ccc_twin_stop(sk, &slot->twin, ccc_inner_of(sk));
		return false;
	}
	if (!coupled) {
		slot->followed = slot->view.epoch;
		slot->charged = false;
	}
	WRITE_ONCE(slot->share, ccc_packets(tcp_sk(sk), slot, slot->view.level));
	if (slot->followed != slot->view.epoch)
		ccc_follow(sk, slot);
	return true;
}

/*
 * Keep the inner algorithm in the aggregate's phase: in congestion avoidance
 * it must not take its own part below the threshold for slow start.
 */
static u32 ccc_phase_ssthresh(const struct tcp_sock *tp,
			      const struct ccc_slot *slot)
{
	u64 level = slot->view.ssthresh_level;
	u32 ssthresh = TCP_INFINITE_SSTHRESH;

	if (level != VIRTIO_CCC_LEVEL_UNSET)
		ssthresh = clamp_t(u32, ccc_packets(tp, slot, level), 2,
				   TCP_INFINITE_SSTHRESH);
	if (slot->view.flags & VIRTIO_CCC_L_SLOW_START)
		return ssthresh;
	return min(ssthresh, tcp_snd_cwnd(tp));
}

static void ccc_set_window(struct tcp_sock *tp, const struct ccc_slot *slot,
			   u32 cwnd)
{
	cwnd = min(cwnd, tp->snd_cwnd_clamp);
	tcp_snd_cwnd_set(tp, cwnd);
	/* Credit of a larger window would open the smaller one at once. */
	tp->snd_cwnd_cnt = min(tp->snd_cwnd_cnt, cwnd - 1);
	WRITE_ONCE(tp->snd_ssthresh, ccc_phase_ssthresh(tp, slot));
}

void ccc_apply(struct sock *sk, struct ccc_slot *slot, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);

	if (!ccc_read_share(sk, slot))
		return;
	if (slot->share <= cwnd)
		slot->climb = 0;
	else if (!slot->climb)
		slot->climb = ccc_climb(cwnd, slot->share);
	ccc_set_window(tp, slot,
		       ccc_apply_share(cwnd, slot->share,
				       tcp_packets_in_flight(tp), acked,
				       slot->climb));
	if (slot->view.flags & VIRTIO_CCC_L_SLOW_START)
		slot->twin.cwnd = 0;
	else if (!slot->twin.cwnd)
		ccc_twin_start(&slot->twin, slot->share);
}

/* In slow start there is no room to wait for: nobody has filled the path. */
void ccc_join(struct tcp_sock *tp, const struct ccc_slot *slot)
{
	if (!slot->coupled || (slot->view.flags & VIRTIO_CCC_L_SLOW_START))
		return;
	ccc_set_window(tp, slot,
		       ccc_join_window(tcp_snd_cwnd(tp), slot->share));
}
