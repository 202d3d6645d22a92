// SPDX-License-Identifier: GPL-2.0
/*
 * The coupled congestion control as a BPF program: what TCP calls.
 *
 * It does what the module in linux-ccc does, with the same arithmetic, for the
 * flows of cgroups and network namespaces.  Its tables lie in arrays that the
 * loader maps and hands to the daemon.  Without a table, a loader or a daemon
 * each flow is the kernel's Reno or CUBIC.
 */
#include "choose.h"
#include "quiet.h"
#include "recovery.h"
#include "slot.h"

const volatile struct ccc_layout ccc_layout = {
	.slots = CCC_SLOTS,
	.lines = CCC_LINES,
	.tenants = CCC_TENANTS,
	.grants_offset = __builtin_offsetof(struct ccc_table, status),
	.control_offset = __builtin_offsetof(struct ccc_table, control),
	.table_bytes = sizeof(struct ccc_table),
};

/* The flow, of which more may change than what its next ACK looks at. */
static inline struct ccc_flow *flow_disturbed(struct sock *sk,
					      struct ccc_table **table)
{
	struct ccc_flow *flow = ccc_flow_get(sk, table);

	ccc_sk(sk)->settled = 0;
	if (flow && flow->shadow.quiet_acked)
		ccc_quiet_add_up(sk, flow, tcp_is_cwnd_limited(sk));
	return flow;
}

/* A flow that has no slot and sends looks for one now and then. */
static inline struct ccc_flow *flow_get_sender(struct sock *sk,
					       struct ccc_table **table)
{
	struct ccc_flow *flow = ccc_flow_get(sk, table);
	struct ccc_sock *csk = ccc_sk(sk);

	if (flow || !csk->sender || tcp_sk(sk)->tcp_mstamp < csk->look_us)
		return flow;
	flow = ccc_flow_take(sk, table);
	if (flow)
		ccc_report_first(sk, *table, flow);
	return flow;
}

static inline void init_sock(struct sock *sk, u8 cubic)
{
	struct ccc_sock *csk = ccc_sk(sk);

	csk->generation = 0;
	csk->look_us = 0;
	csk->parked = 0;
	csk->timed = 0;
	/* One that changes to this algorithm may be sending already. */
	csk->sender = tcp_sk(sk)->packets_out != 0;
	csk->cubic = cubic;
}

SEC("struct_ops")
void BPF_PROG(ccc_init_reno, struct sock *sk)
{
	init_sock(sk, 0);
}

SEC("struct_ops")
void BPF_PROG(ccc_init_cubic, struct sock *sk)
{
	init_sock(sk, 1);
	if (ccc_has_cubic)
		cubictcp_init(sk);
}

SEC("struct_ops")
void BPF_PROG(ccc_release, struct sock *sk)
{
	struct ccc_table *table;
	struct ccc_flow *flow = flow_disturbed(sk, &table);

	ccc_timer_off(sk);
	if (flow)
		ccc_flow_leave(sk, table, flow);
}

/* What the general way does with an ACK, and whether the next may be quiet. */
static inline void report_and_follow(struct sock *sk, struct ccc_table *table,
				     struct ccc_flow *flow, u32 acked)
{
	u8 state = ca_state(sk);
	struct ccc_tcp tcp = {};

	ccc_look_as(sk, &tcp, state);
	ccc_report(table, flow, &tcp, 0);
	if (state != TCP_CA_Loss) {
		ccc_cwnd_update(sk, table, flow, &tcp, acked);
		ccc_quiet_next(sk, table, flow);
	}
	ccc_flow_park(sk, table);
}

/*
 * A message is due at a quiet ACK, and nothing else, so far; or, where it would be
 * too early, a look at what may have changed.
 */
static inline void tell_quietly(struct sock *sk, struct ccc_table *table,
				struct ccc_flow *flow, u32 acked)
{
	struct ccc_tcp tcp = { .state = VIRTIO_CCC_STATE_CA, .active = true };
	bool early;

	ccc_quiet_add_up(sk, flow, true);
	ccc_look(sk, &tcp);
	early = ccc_report_too_soon(tcp.now_us - flow->report.notified_us,
				    flow->grant.report_interval_us);
	ccc_report(table, flow, &tcp, early ? 0 : VIRTIO_CCC_OP_UPDATE);
	if (ccc_quiet_goes_on(sk, table, flow))
		return;
	ccc_cwnd_update(sk, table, flow, &tcp, acked);
	ccc_quiet_next(sk, table, flow);
}

SEC("struct_ops")
void BPF_PROG(ccc_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct ccc_table *table;
	struct ccc_flow *flow = flow_get_sender(sk, &table);
	u32 before, growth;
	bool cwnd_limited;

	if (!flow) {
		/* Also one that sent when it was restored (TCP_REPAIR). */
		ccc_sk(sk)->sender = 1;
		/* When it lost its slot, its time to send may have been ahead. */
		ccc_timer_off(sk);
		inner_cong_avoid(sk, ack, acked);
		return;
	}
	cwnd_limited = tcp_is_cwnd_limited(sk);
	if (cwnd_limited && ccc_is_quiet(sk, table, flow)) {
		if (ccc_quiet_ack(sk, flow, acked))
			tell_quietly(sk, table, flow, acked);
		return;
	}
	if (flow->shadow.quiet_acked)
		ccc_quiet_add_up(sk, flow, cwnd_limited);
	before = tcp_sk(sk)->snd_cwnd;
	/* What is spread over a round trip is limited by what is granted. */
	cwnd_limited |= flow->cwnd.paced;
	growth = ccc_shadow_grow(sk, flow, ack, acked);
	ccc_report_acked(sk, flow, acked, growth, cwnd_limited);
	if (flow->grant.coupled && ca_state(sk) != TCP_CA_Loss)
		tcp_sk(sk)->snd_cwnd = before;
	report_and_follow(sk, table, flow, acked);
}

SEC("struct_ops")
void BPF_PROG(ccc_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	if (ccc_has_cubic)
		cubictcp_acked(sk, sample);
}

/* Not in line: few ACKs come here, and all would save the registers for it. */
static __noinline void watched_ack(struct sock *sk, u32 flags)
{
	struct ccc_table *table;
	struct ccc_flow *flow = flow_disturbed(sk, &table);

	if (!flow) {
		ccc_sk(sk)->watched = 0;
		return;
	}
	ccc_recovery_watch(sk, flow, flags);
	follow_answer(sk, table, flow);
	/* cong_avoid() does not run while TCP reduces the window. */
	if (flow->report.now.state == VIRTIO_CCC_STATE_FR) {
		ccc_report_end_of_data(sk, flow);
		ccc_report_update(sk, table, flow, ca_state(sk));
	}
	ccc_flow_park(sk, table);
}

SEC("struct_ops")
void BPF_PROG(ccc_in_ack_event, struct sock *sk, u32 flags)
{
	if (ccc_recovery_is_watched(sk, flags))
		watched_ack(sk, flags);
}

/* It takes at most what it is granted; more is released by ACKs. */
static inline void take_window(struct sock *sk, struct ccc_table *table,
			       struct ccc_flow *flow, bool joins)
{
	struct ccc_tcp tcp = {};

	if (!is_open(sk))
		return;
	ccc_look(sk, &tcp);
	ccc_cwnd_update(sk, table, flow, &tcp, 0);
	if (!joins)
		return;
	ccc_opening_look(sk, flow);
	ccc_report_update(sk, table, flow, ca_state(sk));
	if (flow->report.opening != 1)
		ccc_cwnd_join(sk, flow);
}

/* Data leaves, and nothing was in flight. */
static inline void begin_or_resume(struct sock *sk)
{
	u32 idle = (u32)bpf_jiffies64() - tcp_sk(sk)->lsndtime;
	struct ccc_table *table;
	struct ccc_flow *flow;
	bool joins;

	/* What is sent again to a peer that may have vanished needs no slot. */
	if (ca_state(sk) == TCP_CA_Loss && !ccc_sk(sk)->generation) {
		ccc_sk(sk)->sender = 1;
		return;
	}
	flow = flow_disturbed(sk, &table);
	joins = !flow || !flow->report.now.active;
	if (flow) {
		/* The aggregate has gone on without it and its shadow window. */
		if (idle > inet_csk(sk)->icsk_rto)
			ccc_shadow_stop(sk, flow);
		ccc_report_resume(sk, table, flow);
	} else {
		flow = ccc_flow_take(sk, &table);
		if (flow)
			ccc_report_first(sk, table, flow);
	}
	if (flow)
		take_window(sk, table, flow, joins);
}

SEC("struct_ops")
void BPF_PROG(ccc_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	ccc_sk(sk)->settled = 0;
	if (ccc_has_tx_start)
		return;
	if (inner_is_cubic(sk))
		cubictcp_cwnd_event(sk, event);
	if (event == CA_EVENT_TX_START)
		begin_or_resume(sk);
}

SEC("struct_ops")
void BPF_PROG(ccc_cwnd_event_tx_start, struct sock *sk)
{
	ccc_sk(sk)->settled = 0;
	if (inner_is_cubic(sk))
		cubictcp_cwnd_event_tx_start(sk);
	begin_or_resume(sk);
}

/*
 * An application writes while the first packets leave.  Who has written a header
 * joins with its body.
 */
static inline void write_more(struct sock *sk, struct ccc_table *table,
			      struct ccc_flow *flow)
{
	if (flow->report.opening == 1) {
		take_window(sk, table, flow, true);
		return;
	}
	ccc_opening_look(sk, flow);
	ccc_report_update(sk, table, flow, ca_state(sk));
}

/* Not in line, as watched_ack(). */
static __noinline void rated_send(struct sock *sk)
{
	struct ccc_table *table;
	struct ccc_flow *flow = ccc_flow_get(sk, &table);

	if (!flow)
		return;
	if (ccc_opening_grew(sk, flow))
		write_more(sk, table, flow);
	ccc_cwnd_before_send(sk, flow);
}

SEC("struct_ops")
u32 BPF_PROG(ccc_min_tso_segs, struct sock *sk)
{
	/* One that has parked keeps its slot where it is. */
	if (ccc_sk(sk)->rated && ccc_sk(sk)->generation)
		rated_send(sk);
	return sk->__sk_common.skc_net.net->ipv4.sysctl_tcp_min_tso_segs;
}

SEC("struct_ops")
u32 BPF_PROG(ccc_ssthresh, struct sock *sk)
{
	struct ccc_table *table;
	struct ccc_flow *flow = flow_disturbed(sk, &table);
	u32 ssthresh;

	if (!flow)
		return inner_ssthresh(sk);
	ssthresh = ccc_recovery_ssthresh(sk, table, flow);
	ccc_flow_park(sk, table);
	return ssthresh;
}

SEC("struct_ops")
void BPF_PROG(ccc_set_state, struct sock *sk, u8 state)
{
	struct ccc_table *table;
	struct ccc_flow *flow = flow_disturbed(sk, &table);

	ccc_sk(sk)->watched |= state > TCP_CA_Disorder;
	if (!flow) {
		inner_set_state(sk, state);
		return;
	}
	ccc_recovery_set_state(sk, table, flow, state);
	/* No ACK comes of a peer that has vanished, or once all is acknowledged. */
	ccc_flow_park(sk, table);
}

SEC("struct_ops")
u32 BPF_PROG(ccc_undo_cwnd, struct sock *sk)
{
	struct ccc_table *table;
	struct ccc_flow *flow = flow_disturbed(sk, &table);
	u32 cwnd;

	if (!flow)
		return tcp_reno_undo_cwnd(sk);
	cwnd = ccc_recovery_undo_cwnd(sk, table, flow);
	/* What was sent twice may be told of when nothing is on its way. */
	ccc_flow_park(sk, table);
	return cwnd;
}

SEC(".struct_ops.link")
struct tcp_congestion_ops ccc_reno = {
	.init		= (void *)ccc_init_reno,
	.release	= (void *)ccc_release,
	.ssthresh	= (void *)ccc_ssthresh,
	.set_state	= (void *)ccc_set_state,
	.undo_cwnd	= (void *)ccc_undo_cwnd,
	.cong_avoid	= (void *)ccc_cong_avoid,
	.in_ack_event	= (void *)ccc_in_ack_event,
	.cwnd_event	= (void *)ccc_cwnd_event,
	.cwnd_event_tx_start = (void *)ccc_cwnd_event_tx_start,
	.min_tso_segs	= (void *)ccc_min_tso_segs,
	.flags		= TCP_CONG_NON_RESTRICTED,
	.name		= "ccc_reno",
};

SEC(".struct_ops.link")
struct tcp_congestion_ops ccc_cubic = {
	.init		= (void *)ccc_init_cubic,
	.release	= (void *)ccc_release,
	.ssthresh	= (void *)ccc_ssthresh,
	.set_state	= (void *)ccc_set_state,
	.undo_cwnd	= (void *)ccc_undo_cwnd,
	.cong_avoid	= (void *)ccc_cong_avoid,
	.pkts_acked	= (void *)ccc_pkts_acked,
	.in_ack_event	= (void *)ccc_in_ack_event,
	.cwnd_event	= (void *)ccc_cwnd_event,
	.cwnd_event_tx_start = (void *)ccc_cwnd_event_tx_start,
	.min_tso_segs	= (void *)ccc_min_tso_segs,
	.flags		= TCP_CONG_NON_RESTRICTED,
	.name		= "ccc_cubic",
};

char LICENSE[] SEC("license") = "GPL";
