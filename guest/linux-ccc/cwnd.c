// SPDX-License-Identifier: GPL-2.0
/*
 * What the host grants, done: the window of a flow is its part of the aggregate's.
 */
#include "flow.h"

static u64 ccc_slot_units(const struct ccc_slot *slot)
{
	return ccc_units(slot->priority, slot->srtt_us,
			 slot->view.flags & VIRTIO_CCC_L_RATE);
}

static u32 ccc_packets(const struct tcp_sock *tp, const struct ccc_slot *slot,
		       u64 level)
{
	u32 share = ccc_share_packets(level, ccc_slot_units(slot),
				      tp->mss_cache,
				      slot->offset + slot->view.phase);

	return ccc_cap_packets(share, slot->view.cap, tp->mss_cache);
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
	u64 level = slot->view.level;
	u32 epoch = slot->view.epoch;
	bool coupled = slot->coupled;

	ccc_grant_refresh(slot);
	if (!slot->coupled) {
		ccc_show(sk, 0);
		ccc_twin_stop(sk, &slot->twin, ccc_inner_of(sk));
		ccc_clock_count(slot, 0, false);
		return false;
	}
	ccc_clock_count(slot, slot->active ? ccc_slot_units(slot) : 0,
			slot->limited && !slot->joining);
	if (!coupled) {
		slot->followed = slot->view.epoch;
		slot->charged = false;
	}
	if (slot->view.epoch == epoch &&
	    !(slot->view.flags & VIRTIO_CCC_L_SLOW_START) &&
	    ccc_level_jumps(level, slot->view.level))
		slot->slow_rounds = 0;
	WRITE_ONCE(slot->share, ccc_packets(tcp_sk(sk), slot, slot->view.level));
	ccc_show(sk, max(slot->share, 1u));
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

/*
 * Where TCP's own machinery is to take the window after an event: to the share;
 * after a timeout, where the aggregate begins again in slow start, to its part
 * of the threshold, or the flow would creep up from two segments.
 */
u32 ccc_target(const struct tcp_sock *tp, const struct ccc_slot *slot,
	       u8 ca_state)
{
	u64 level = slot->view.ssthresh_level;
	u32 target = slot->share;

	if (ca_state == TCP_CA_Loss && level != VIRTIO_CCC_LEVEL_UNSET &&
	    (slot->view.flags & VIRTIO_CCC_L_SLOW_START))
		target = max(target, ccc_packets(tp, slot, level));
	return clamp(target, 2u, max(tp->prior_cwnd, 2u));
}

static void ccc_set_window(struct tcp_sock *tp, const struct ccc_slot *slot,
			   u32 cwnd)
{
	cwnd = ccc_window(cwnd, tp->snd_cwnd_clamp);
	tcp_snd_cwnd_set(tp, cwnd);
	/* Credit of a larger window would open the smaller one at once. */
	tp->snd_cwnd_cnt = min(tp->snd_cwnd_cnt, cwnd - 1);
	WRITE_ONCE(tp->snd_ssthresh, ccc_phase_ssthresh(tp, slot));
}

/*
 * A flow that joins, and all flows in slow start, are released by the ACKs of
 * others too.  A share that has grown because others left is approached by
 * the flow's own.
 */
static void ccc_follow_clock(struct sock *sk, struct ccc_slot *slot)
{
	if (slot->share <= tcp_snd_cwnd(tcp_sk(sk)))
		slot->joining = false;
	if (slot->limited &&
	    (slot->joining || (slot->view.flags & VIRTIO_CCC_L_SLOW_START)))
		ccc_clock_wait(sk, slot, 0);
	else
		ccc_clock_stop(slot);
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
	ccc_follow_clock(sk, slot);
}

/*
 * The flow begins, or comes back.  In slow start there is no room to wait for:
 * nobody has filled the path.
 */
void ccc_join(struct sock *sk, struct ccc_slot *slot)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd;

	if (!slot->coupled || (slot->view.flags & VIRTIO_CCC_L_SLOW_START))
		return;
	cwnd = ccc_join_begin(sk, slot);
	ccc_set_window(tp, slot, cwnd);
	slot->joining = cwnd < slot->share;
	if (slot->joining)
		ccc_clock_wait(sk, slot, cwnd);
}

/* Data is about to be sent: as much more as others' ACKs have released. */
void ccc_release_more(struct sock *sk, struct ccc_slot *slot)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u32 cwnd = tcp_snd_cwnd(tp);
	u32 packets;

	/* What is released to a flow that has room is not used. */
	packets = ccc_clock_take(slot, tp->mss_cache);
	if (!packets || tcp_packets_in_flight(tp) < cwnd ||
	    inet_csk(sk)->icsk_ca_state > TCP_CA_Disorder ||
	    !ccc_read_share(sk, slot))
		return;
	ccc_set_window(tp, slot, max(cwnd, min(slot->share, cwnd + packets)));
	ccc_follow_clock(sk, slot);
}
