/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections that replay a trace: packets as a sender's cable carried them are
 * shown to a flow's logic as FreeBSD's TCP would, tcp_input.c and tcp_timer.c,
 * over the tables of a real daemon.  A library for test_freebsd_flows.py.
 */
#include <stdlib.h>

#include "../ccc_flow.h"

#define	DUPACKS	3
#define	FLOWS	16

/* Written by test_freebsd_flows.py: the tables of a front end. */
struct replay_tables {
	struct virtio_ccc_report *report;
	const struct virtio_ccc_extent_status *status;
	const struct virtio_ccc_grant_line *line;
	const struct virtio_ccc_slot_grant *grant;
	void (*doorbell)(uint16_t op, uint32_t slot, uint32_t generation);
	uint32_t slots, lines, stale_us;
};

/* One VM's. */
struct ccc_device {
	struct ccc_config config;
	struct replay_tables tables;
	struct ccc_slot slot[FLOWS];
};

struct replay_flow {
	struct ccc_device *device;
	struct tcpcb tcp;
	struct ccc_flow flow;
	uint32_t bytes_acked;
	tcp_seq recover;
	unsigned int dupacks;
};

/* What test_freebsd_flows.py reads. */
struct replay_state {
	uint64_t delivered_bytes;
	uint32_t cwnd, ssthresh, events, timeouts, slot;
	bool has_slot, coupled;
};

/* Whose connection is at work. */
static struct ccc_device *current;

struct ccc_slot *
ccc_slot_take(void)
{
	struct ccc_slot *slot;

	for (slot = current->slot; slot < current->slot + FLOWS; slot++) {
		if (slot->in_use)
			continue;
		slot->in_use = true;
		slot->generation = ccc_next_generation(slot->generation);
		return (slot);
	}
	return (NULL);
}

void
ccc_slot_drop(struct ccc_slot *slot)
{
	slot->in_use = false;
}

bool
ccc_slot_is_live(const struct ccc_slot *slot)
{
	return (slot->in_use);
}

uint32_t
ccc_slot_changes(void)
{
	return (0);
}

void
ccc_doorbell_send(struct ccc_device *dev, uint16_t op, uint32_t slot,
    uint32_t generation)
{
	dev->tables.doorbell(op, slot, generation);
}

const struct ccc_config *
ccc_device_config(const struct ccc_device *dev)
{
	return (&dev->config);
}

const struct virtio_ccc_grant_line *
ccc_device_line(const struct ccc_device *dev, uint16_t line)
{
	return (&dev->tables.line[line]);
}

uint32_t
ccc_device_instance(const struct ccc_device *dev)
{
	return (le32toh(dev->tables.status->instance));
}

bool
ccc_device_is_stale(const struct ccc_device *dev)
{
	(void)dev;
	return (false);
}

struct ccc_device *
replay_device(const struct replay_tables *tables)
{
	struct ccc_device *dev = calloc(1, sizeof(*dev));
	uint32_t i;

	dev->tables = *tables;
	dev->config = (struct ccc_config) { .slots = tables->slots,
	    .grant_lines = tables->lines, .stale_us = tables->stale_us,
	    .rate_share = true };
	for (i = 0; i < FLOWS; i++) {
		dev->slot[i] = (struct ccc_slot) { .dev = dev, .index = i,
		    .report = &tables->report[i], .grant = &tables->grant[i],
		    .rounding_offset = ccc_rounding_offset(i) };
	}
	return (dev);
}

/* A connection whose first byte of data is @seq; addresses as in its packets. */
struct replay_flow *
replay_open(struct ccc_device *dev, uint32_t saddr, uint32_t daddr,
    uint16_t sport, uint16_t dport, uint32_t mss, uint32_t seq)
{
	struct replay_flow *at = calloc(1, sizeof(*at));

	at->device = dev;
	at->tcp = (struct tcpcb) { .snd_cwnd = 10 * mss,
	    .snd_ssthresh = TCP_MAXWIN << TCP_MAX_WINSHIFT,
	    .snd_wnd = 1u << 30, .snd_scale = TCP_MAX_WINSHIFT,
	    .snd_una = seq, .snd_max = seq, .test_mss = mss,
	    .test_queued = 1u << 30, .test_saddr = saddr,
	    .test_daddr = daddr, .test_sport = sport, .test_dport = dport };
	at->tcp.t_ccv.tp = &at->tcp;
	at->tcp.t_ccv.cc_data = &at->flow;
	at->flow.priority = VIRTIO_CCC_PRIORITY_ONE;
	at->flow.changes = ccc_slot_changes() - 1;
	return (at);
}

static void
act_as(struct replay_flow *at, uint64_t now_us)
{
	current = at->device;
	test_now_us = now_us;
}

static void
signal_congestion(struct replay_flow *at, ccc_signal_t type)
{
	struct tcpcb *tp = &at->tcp;

	at->recover = tp->snd_max;
	if (type == CC_RTO) {
		at->dupacks = 0;
		EXIT_RECOVERY(tp->t_flags);
	}
	if (ccc_flow_has_slot(tp, &at->flow))
		ccc_recovery_signal(&tp->t_ccv, &at->flow, type);
	else
		ccc_recovery_signal_alone(&tp->t_ccv, &at->flow, type);
}

/* The sender has sent @bytes from @seq. */
void
replay_sent(struct replay_flow *at, uint64_t now_us, uint32_t seq,
    uint32_t bytes, bool fin)
{
	struct tcpcb *tp = &at->tcp;

	act_as(at, now_us);
	/* The oldest segment again: for what others told, or for silence. */
	if (seq == tp->snd_una && SEQ_GT(tp->snd_max, seq) &&
	    !IN_RECOVERY(tp->t_flags))
		signal_congestion(at, at->dupacks > 0 ? CC_NDUPACK : CC_RTO);
	if (fin) {
		tp->t_flags |= TF_SENTFIN;
		tp->test_queued = seq + bytes + 1 - tp->snd_una;
	}
	if (SEQ_GT(seq + bytes + fin, tp->snd_max))
		tp->snd_max = seq + bytes + fin;
}

static void
duplicate(struct replay_flow *at)
{
	struct tcpcb *tp = &at->tcp;

	at->dupacks++;
	tp->t_ccv.bytes_this_ack = 0;
	tp->t_ccv.curack = tp->snd_una;
	if (at->dupacks == DUPACKS && !IN_RECOVERY(tp->t_flags))
		signal_congestion(at, CC_NDUPACK);
	else if (at->dupacks > DUPACKS || IN_RECOVERY(tp->t_flags))
		ccc_flow_ack(&tp->t_ccv, &at->flow, CC_DUPACK);
}

/* Whether NewReno's window has been acknowledged once more (RFC 3465). */
static void
count_window(struct replay_flow *at, uint32_t bytes)
{
	struct tcpcb *tp = &at->tcp;

	tp->t_ccv.flags &= ~CCF_ABC_SENTAWND;
	if (tp->snd_cwnd <= tp->snd_ssthresh) {
		at->bytes_acked = 0;
		return;
	}
	at->bytes_acked += bytes;
	if (at->bytes_acked < tp->snd_cwnd)
		return;
	at->bytes_acked -= tp->snd_cwnd;
	tp->t_ccv.flags |= CCF_ABC_SENTAWND;
}

static void
end_recovery(struct replay_flow *at)
{
	struct tcpcb *tp = &at->tcp;

	if (ccc_flow_has_slot(tp, &at->flow))
		ccc_recovery_end(&tp->t_ccv, &at->flow);
	else
		ccc_inner_post_recovery(&tp->t_ccv, &at->flow);
	EXIT_RECOVERY(tp->t_flags);
}

/* The receiver has acknowledged all before @ack; @sacks: and something after. */
void
replay_acked(struct replay_flow *at, uint64_t now_us, uint32_t ack, bool sacks)
{
	struct tcpcb *tp = &at->tcp;
	uint32_t bytes = ack - tp->snd_una;

	act_as(at, now_us);
	if (ack == tp->snd_una && sacks && SEQ_GT(tp->snd_max, ack))
		duplicate(at);
	if (!SEQ_GT(ack, tp->snd_una) || SEQ_GT(ack, tp->snd_max))
		return;
	count_window(at, bytes);
	tp->t_ccv.bytes_this_ack = bytes;
	tp->t_ccv.curack = ack;
	tp->t_ccv.flags |= CCF_CWND_LIMITED;
	at->dupacks = 0;
	ccc_flow_ack(&tp->t_ccv, &at->flow, CC_ACK);
	if ((tp->t_flags & TF_SENTFIN) != 0)
		tp->test_queued -= bytes;
	tp->snd_una = ack;
	if (IN_RECOVERY(tp->t_flags) && SEQ_GEQ(ack, at->recover))
		end_recovery(at);
}

/* The connection is aborted. */
void
replay_closed(struct replay_flow *at, uint64_t now_us)
{
	act_as(at, now_us);
	ccc_flow_detach(&at->tcp, &at->flow);
}

struct replay_state
replay_state(const struct replay_flow *at)
{
	const struct ccc_flow *flow = &at->flow;

	return ((struct replay_state) {
		.delivered_bytes = flow->report.delivered_bytes,
		.cwnd = at->tcp.snd_cwnd, .ssthresh = at->tcp.snd_ssthresh,
		.events = flow->recovery.congestion_events,
		.timeouts = flow->recovery.timeouts,
		.slot = flow->slot != NULL ? flow->slot->index : 0,
		.has_slot = flow->slot != NULL,
		.coupled = flow->grant.coupled,
	});
}
