/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A flow: its socket, its inner algorithm and, if it has one, its slot.  All
 * of this runs under the socket's lock.
 */
#ifndef CCC_FLOW_H
#define CCC_FLOW_H

#include "device.h"

/*
 * What is known of a flow without a slot; behind the inner algorithm's part.
 *
 * Only whoever has locked the socket may follow its pointers.  Others (ss(8),
 * getsockopt()) read @shown and nothing else: they may come while the socket
 * changes its algorithm, and find here what another one has left.
 */
struct ccc_flow {
	struct ccc_slot *slot;
	const struct tcp_congestion_ops *inner;	/* unless it is ccc_inner */
	u32 shown;		/* the share in packets; 0: not coupled */
	u16 tried;		/* ccc_room at the last attempt to take a slot */
	bool sender;		/* has sent data */
};

#define CCC_INNER_PRIV_SIZE	(ICSK_CA_PRIV_SIZE - sizeof(struct ccc_flow))

static inline struct ccc_flow *ccc_flow(const struct sock *sk)
{
	return inet_csk_ca(sk) + CCC_INNER_PRIV_SIZE;
}

/* ccc_inner.c: the inner algorithm, and what it says about itself */
extern const struct tcp_congestion_ops *ccc_inner;

int ccc_inner_load(const char *name);
void ccc_inner_unload(void);

static inline const struct tcp_congestion_ops *
ccc_inner_of(const struct sock *sk)
{
	return ccc_flow(sk)->inner ?: ccc_inner;
}

/* For those who look without the socket's lock. */
static inline void ccc_show(struct sock *sk, u32 share)
{
	WRITE_ONCE(ccc_flow(sk)->shown, share);
}

/* ccc_flow.c: taking a slot and giving it back */
struct ccc_slot *ccc_enter(struct sock *sk);
void ccc_leave(struct sock *sk, struct ccc_slot *slot);
struct ccc_slot *ccc_slot(struct sock *sk);
struct ccc_slot *ccc_slot_or_enter(struct sock *sk);

/* ccc_scope.c: which flows are coupled */
bool ccc_in_scope(struct sock *sk);

/* ccc_report.c: what the device is told */
u8 ccc_wire_state(const struct sock *sk, u8 ca_state);
u16 ccc_priority_of(const struct sock *sk);
bool ccc_has_data(const struct sock *sk);
void ccc_report_first(const struct sock *sk, struct ccc_slot *slot);
void ccc_report_as(const struct sock *sk, struct ccc_slot *slot, u8 state,
		   bool active);
void ccc_report(const struct sock *sk, struct ccc_slot *slot);
void ccc_report_last(const struct sock *sk, struct ccc_slot *slot);

/* ccc_join.c: how a flow joins others */
u32 ccc_join_begin(struct sock *sk, const struct ccc_slot *slot);

/* ccc_window.c: what is granted, done */
bool ccc_read_share(struct sock *sk, struct ccc_slot *slot);
u32 ccc_target(const struct tcp_sock *tp, const struct ccc_slot *slot,
	       u8 ca_state);
void ccc_apply(struct sock *sk, struct ccc_slot *slot, u32 acked);
void ccc_join(struct sock *sk, struct ccc_slot *slot);
void ccc_release_more(struct sock *sk, struct ccc_slot *slot);

/* ccc_event.c: congestion events */
void ccc_watch_probe(const struct tcp_sock *tp, struct ccc_slot *slot);
u32 ccc_ssthresh(struct sock *sk);
void ccc_set_state(struct sock *sk, u8 new);
u32 ccc_undo_cwnd(struct sock *sk);

/* ccc_twin.c: the inner algorithm's own window */
void ccc_twin_start(struct ccc_twin *twin, u32 cwnd);
void ccc_twin_stop(struct sock *sk, struct ccc_twin *twin,
		   const struct tcp_congestion_ops *inner);
u32 ccc_twin_grow(struct sock *sk, struct ccc_twin *twin,
		  const struct tcp_congestion_ops *inner, u32 ack, u32 acked);
u32 ccc_twin_ssthresh(struct sock *sk, struct ccc_twin *twin,
		      const struct tcp_congestion_ops *inner);
void ccc_twin_set_state(struct sock *sk, struct ccc_twin *twin,
			const struct tcp_congestion_ops *inner, u8 state);
void ccc_twin_reduce(struct ccc_twin *twin);
void ccc_twin_undo(struct sock *sk, struct ccc_twin *twin,
		   const struct tcp_congestion_ops *inner);

#endif /* CCC_FLOW_H */
