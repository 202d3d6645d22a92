/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The congestion control half of the module: a flow, which is a socket with a
 * slot.  All of this runs under the socket's lock.  Each structure is written
 * by the file that is named above it, and all are reset when the flow begins.
 */
#ifndef CCC_FLOW_H
#define CCC_FLOW_H

#include <linux/list.h>

#include "common/ack_clock.h"
#include "common/cwnd.h"
#include "common/opening.h"
#include "common/shadow.h"
#include "device.h"

/* report.c: of which the device is told at every change; without holes. */
struct ccc_signals {
	u16 congestion_events;
	u16 timeouts;
	u16 spurious_events;
	u16 priority;
	u8 state;
	bool active;
};

/* report.c: what the device is told, beside what TCP has itself. */
struct ccc_report {
	u64 acked_limited_bytes;
	u64 delivered_bytes;
	u32 cwnd_growth_bytes;
	u32 tcp_delivered;	/* tp->delivered that delivered_bytes includes */
	u32 updated;		/* tcp_jiffies32 of the latest report */
	u64 averaged_us;	/* when a full window was averaged, or 0 */
	u32 srtt_us;		/* over many round trips: shares by rate count it */
	u32 rtt_rounds;		/* that many, in 256ths */
	u32 rtt_us;		/* the least since the last message; 0: none */
	u32 opening;		/* packets it had to send; 0: its ACKs tell */
	u16 priority;
	u8 srtt_rest;		/* of a microsecond that srtt_us is more */
	u8 state;
	bool active;
	bool cwnd_limited;	/* the window was the limit at the last ACK */
	bool at_once;		/* the device is to be told, whatever is due */
	struct {
		u64 at_us;
		u64 delivered_bytes;
		u32 cwnd_growth_bytes;
		struct ccc_signals signals;
	} last_notified;
};

/* cwnd.c: on the way to the granted window. */
struct ccc_cwnd {
	u64 paced_until_us;	/* at the latest */
	u16 ramp;		/* 256ths of a packet an ACK releases towards it */
	u8 shed;		/* 256ths of a packet an ACK takes towards it */
	u8 rest;		/* of a packet, so released or taken */
	bool joining;		/* has not had it yet */
	bool paced;		/* by a rate of ours, until it has had it */
	bool spread;		/* less than two segments, over more than an RTT */
	bool smooth;		/* at TCP's own rate, what is written at a time */
	bool hindered;		/* it could not send for two round trips what waits */
	bool timed;		/* TCP's timer is on for one of these */
};

/* recovery.c: congestion events. */
struct ccc_recovery {
	u64 tail_sent_us;	/* of a segment that was sent again as a probe */
	u32 reduced_epoch;	/* the event's, if it is one */
	u32 congestion_epoch;	/* the latest event's */
	u16 congestion_events;
	u16 timeouts;
	u16 spurious_events;
	bool ece;		/* the ACK being processed carries ECE */
	bool reduced;		/* by ssthresh(), for set_state() to report */
	bool local;		/* and not for the network, so far */
	bool undoable;		/* the latest event has not been undone */
	bool over;		/* with the ACK being processed */
};

/* shadow.c: the inner algorithm's own window, in packets. */
struct ccc_shadow {
	u32 cwnd;		/* 0: there is none */
	u32 cwnd_cnt;
	u32 ssthresh;
	u32 prior_cwnd;
	u32 rest;		/* of the acknowledged packets, when scaled */
	u32 owed;		/* acknowledged, which the algorithm has not had */
	u32 epoch;		/* to which it has been brought */
	u16 beta;		/* the algorithm's latest reduction, of 65536 */
	bool reducing;		/* between ssthresh() and set_state() */
	u64 charged_us;		/* when it was reduced for the flow's own event, */
	bool charged;		/* which the device has not answered */
};

/* quiet.c: what an ACK has to find that changes nothing. */
struct ccc_quiet {
	bool settled;		/* the next may be such a one */
	u32 tcp_due;		/* tp->delivered when a message is due */
	u32 acked;		/* packets of such ACKs, noted and nothing else */
	u32 instance;		/* of the device */
	u32 sk_priority;	/* of the socket, of which its priority is */
	u64 accepted;		/* the slot's first word of the device's */
	u64 same_level;		/* the first level that grants what is granted, */
	u64 same_levels;	/* and how many do */
};

/*
 * ack_clock.c: the flow's part in the ACK clock.  Others' ACKs take it from
 * @waiting and put it on @released, under the clock's lock.
 */
struct ccc_release {
	struct ccc_ack_clock *clock;	/* NULL: none */
	u64 units;
	bool drives;
	bool waits;
	u64 released_at;	/* the clock's time, up to which it was released */
	struct rb_node waiting;
	u64 release_at;		/* of its next packet */
	struct list_head released;
};

/*
 * debugfs and inet_diag look at it without the lock, and may see numbers of two
 * moments.
 */
struct ccc_flow {
	struct ccc_slot *slot;
	const struct tcp_congestion_ops *inner;
	struct ccc_grant grant;
	struct ccc_report report;
	struct ccc_cwnd cwnd;
	struct ccc_recovery recovery;
	struct ccc_shadow shadow;
	struct ccc_quiet quiet;
	struct ccc_release release;
};

static_assert(sizeof(struct ccc_flow) <= CCC_SLOT_PRIV_SIZE);

static inline struct ccc_flow *ccc_flow_of(const struct ccc_slot *slot)
{
	return (struct ccc_flow *)slot->priv;
}

/*
 * flow.c: what is known of a socket, with a slot or without, behind the inner
 * algorithm's part of its private area.
 *
 * Only whoever has locked the socket may follow its pointers.  Others (ss(8),
 * getsockopt()) read @shown_cwnd and nothing else: they may come while the
 * socket changes its algorithm, and find here what another one has left.
 */
struct ccc_sock {
	struct ccc_flow *flow;
	const struct tcp_congestion_ops *inner;	/* unless it is ccc_inner */
	u32 shown_cwnd;		/* what is granted, in packets; 0: not coupled */
	u16 slot_seq;		/* at the last attempt to take a slot */
	bool sender;		/* has sent data */
};

#define CCC_INNER_PRIV_SIZE	(ICSK_CA_PRIV_SIZE - sizeof(struct ccc_sock))
static_assert(sizeof(struct ccc_sock) < ICSK_CA_PRIV_SIZE);
static_assert(CCC_INNER_PRIV_SIZE % __alignof__(struct ccc_sock) == 0);

static inline struct ccc_sock *ccc_sk(const struct sock *sk)
{
	return inet_csk_ca(sk) + CCC_INNER_PRIV_SIZE;
}

extern const struct tcp_congestion_ops *ccc_inner;
/* Its growth is that of the packets that it is told of, in however many calls. */
extern bool ccc_inner_adds_up;
/* It grows by the size of its window, and not by a segment a round trip. */
extern bool ccc_inner_by_size;

int ccc_inner_load(const char *name);
void ccc_inner_unload(void);

static inline const struct tcp_congestion_ops *
ccc_inner_of(const struct sock *sk)
{
	return ccc_sk(sk)->inner ?: ccc_inner;
}

bool ccc_flow_init(struct sock *sk);
struct ccc_flow *ccc_flow_attach(struct sock *sk);
void ccc_flow_detach(struct sock *sk);

/*
 * Whether the extent has been the device's since the flow took the slot.
 *
 * To ask once is enough, though the extent may be withdrawn at any time.  Its
 * memory stays as long as the flow holds the slot, and it is cleared, to be
 * offered again, no earlier than a grace period after it ceased to be live.
 * So who writes to the slot has to do so in the RCU section in which it asked.
 */
static inline bool ccc_flow_is_live(const struct ccc_slot *slot)
{
	return READ_ONCE(slot->extent->use.accepted) &&
	       READ_ONCE(slot->extent->use.offer_seq) ==
		       READ_ONCE(slot->offer_seq);
}

/* The socket's flow, unless the device has gone or wants the slot back. */
static inline struct ccc_flow *ccc_flow_get(struct sock *sk)
{
	struct ccc_flow *flow = ccc_sk(sk)->flow;

	if (!flow || likely(ccc_flow_is_live(flow->slot)))
		return flow;
	ccc_flow_detach(sk);
	return NULL;
}

/* The same for a sender, who takes another slot as soon as there may be one. */
static inline struct ccc_flow *ccc_flow_get_sender(struct sock *sk)
{
	struct ccc_flow *flow = ccc_flow_get(sk);

	if (flow || !ccc_sk(sk)->sender ||
	    ccc_sk(sk)->slot_seq == ccc_slot_seq_read())
		return flow;
	return ccc_flow_attach(sk);
}

/* For those who look without the socket's lock. */
static inline void ccc_flow_show(struct sock *sk, u32 granted)
{
	WRITE_ONCE(ccc_sk(sk)->shown_cwnd, granted);
}

u16 ccc_report_priority(const struct sock *sk);
void ccc_report_first(const struct sock *sk, struct ccc_flow *flow);
void ccc_report_end_of_data(const struct sock *sk, struct ccc_flow *flow);
void ccc_report_acked(const struct sock *sk, struct ccc_flow *flow, u32 acked,
		      u32 growth, bool cwnd_limited);
void ccc_report_wake(struct ccc_flow *flow);
void ccc_report_quiet(struct ccc_flow *flow, u32 acked);
u32 ccc_report_due_at(const struct tcp_sock *tp, const struct ccc_flow *flow);
bool ccc_report_is_early(const struct tcp_sock *tp, const struct ccc_flow *flow);
bool ccc_report_is_steady(const struct ccc_flow *flow);
bool ccc_report_is_told(const struct ccc_flow *flow);
void ccc_report_now(const struct sock *sk, struct ccc_flow *flow);
void ccc_report_rtt(struct ccc_flow *flow, s32 rtt_us);
void ccc_report_restart_rtt(struct ccc_flow *flow);
void ccc_report_update(const struct sock *sk, struct ccc_flow *flow,
		       u8 ca_state);
void ccc_report_resume(const struct sock *sk, struct ccc_flow *flow);
void ccc_report_last(const struct sock *sk, struct ccc_flow *flow);

void ccc_opening_begin(const struct sock *sk, struct ccc_flow *flow);
void ccc_opening_look(const struct sock *sk, struct ccc_flow *flow);
bool ccc_opening_grew(const struct sock *sk, const struct ccc_flow *flow);
void ccc_opening_end(struct ccc_flow *flow);
void ccc_opening_acked(const struct sock *sk, struct ccc_flow *flow);

bool ccc_cwnd_read_grant(struct sock *sk, struct ccc_flow *flow);
u32 ccc_cwnd_after_event(const struct tcp_sock *tp,
			 const struct ccc_flow *flow, u8 ca_state);
void ccc_cwnd_update(struct sock *sk, struct ccc_flow *flow, u32 acked);
void ccc_cwnd_join(struct sock *sk, struct ccc_flow *flow);
bool ccc_cwnd_is_held(const struct sock *sk, struct ccc_flow *flow);
bool ccc_cwnd_wake(struct sock *sk, struct ccc_flow *flow);
void ccc_cwnd_stop_timing(struct sock *sk, struct ccc_flow *flow);
void ccc_cwnd_release(struct sock *sk, struct ccc_flow *flow);

bool ccc_quiet_is(const struct sock *sk, const struct ccc_flow *flow);
bool ccc_quiet_ack(const struct sock *sk, struct ccc_flow *flow, u32 acked);
bool ccc_quiet_goes_on(const struct sock *sk, struct ccc_flow *flow);
void ccc_quiet_next(const struct sock *sk, struct ccc_flow *flow);
void ccc_quiet_add_up(struct sock *sk, struct ccc_flow *flow);

/* For whatever else happens to the flow, before it does. */
static inline void ccc_quiet_end(struct sock *sk, struct ccc_flow *flow)
{
	flow->quiet.settled = false;
	if (flow->quiet.acked)
		ccc_quiet_add_up(sk, flow);
}

/* Whether an ACK says something to recovery.c, or might end what one has said. */
static inline bool ccc_recovery_is_watched(const struct sock *sk,
					   const struct ccc_flow *flow, u32 flags)
{
	return !flow->quiet.settled || (flags & CA_ACK_ECE) ||
	       tcp_sk(sk)->tlp_high_seq;
}

void ccc_recovery_ack(struct sock *sk, struct ccc_flow *flow, u32 flags);
u32 ccc_recovery_ssthresh(struct sock *sk);
void ccc_recovery_set_state(struct sock *sk, u8 state);
u32 ccc_recovery_undo_cwnd(struct sock *sk);

void ccc_shadow_init(struct ccc_flow *flow);
void ccc_shadow_stop(struct sock *sk, struct ccc_flow *flow);
void ccc_shadow_follow_phase(struct ccc_flow *flow);
void ccc_shadow_follow_epoch(struct sock *sk, struct ccc_flow *flow,
			     bool was_coupled);
u32 ccc_shadow_grow(struct sock *sk, struct ccc_flow *flow, u32 ack, u32 acked);
u32 ccc_shadow_grow_late(struct sock *sk, struct ccc_flow *flow, u32 acked);
u32 ccc_shadow_ssthresh(struct sock *sk, struct ccc_flow *flow);
void ccc_shadow_charge(struct sock *sk, struct ccc_flow *flow);
bool ccc_shadow_awaits(const struct sock *sk, const struct ccc_flow *flow);
void ccc_shadow_set_state(struct sock *sk, struct ccc_flow *flow, u8 state);
u32 ccc_shadow_undo_cwnd(struct sock *sk, struct ccc_flow *flow);

void ccc_ack_clock_init(struct ccc_flow *flow);
void ccc_ack_clock_count(struct ccc_flow *flow, u64 units, bool drives);
bool ccc_ack_clock_runs(const struct ccc_flow *flow);
void ccc_ack_clock_wait(const struct sock *sk, struct ccc_flow *flow, u32 debt);
void ccc_ack_clock_stop(struct ccc_flow *flow);
u32 ccc_ack_clock_take(struct ccc_flow *flow, u32 mss);
void ccc_ack_clock_advance(struct ccc_ack_clock *clock, u64 bytes);
void ccc_ack_clock_exit(void);

/* So many bytes of the flow have been acknowledged, which nobody may wait for. */
static inline void ccc_ack_clock_tick(const struct ccc_flow *flow, u64 bytes)
{
	struct ccc_ack_clock *clock = flow->release.clock;

	if (clock && READ_ONCE(clock->waiters))
		ccc_ack_clock_advance(clock, bytes);
}

u32 ccc_idle_reclaim(struct ccc_device *dev, u32 most);

int ccc_tcp_register(void);
void ccc_tcp_unregister(void);

#endif /* CCC_FLOW_H */
