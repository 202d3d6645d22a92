/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The congestion control, cc_ccc: a flow, which is a connection with a slot.
 * All of this runs under the connection's lock.  Each structure is written by
 * the file that is named above it.
 */
#ifndef CCC_FLOW_H
#define CCC_FLOW_H

#include "ccc_device.h"

#include "common/cwnd.h"
#include "common/report.h"
#include "common/shadow.h"

/* ccc_grant.c: the latest grant that was read in one piece, and the flow's part. */
struct ccc_grant {
	uint64_t level;
	uint64_t ssthresh_level;
	uint64_t cap_bytes;
	uint64_t units;		/* of the levels, the flow's */
	uint32_t cwnd;		/* its part of the levels, in packets */
	uint32_t ssthresh;	/* UINT32_MAX: none */
	uint32_t flags;
	uint32_t epoch;
	uint32_t instance;
	uint32_t rounding_offset;
	uint32_t report_interval_us;	/* messages of progress are no closer */
	uint16_t line;
	bool coupled;		/* it is in force */
	bool redivided;		/* since the one before, other than by an event */
	struct {
		tcp_seq from;	/* what was sent from here on is of the epoch */
		bool known;	/* and older data may be outstanding */
	} sent;
};

/* ccc_report.c: of which the device is told at every change; without holes. */
struct ccc_signals {
	uint16_t congestion_events;
	uint16_t timeouts;
	uint16_t spurious_events;
	uint16_t priority;
	uint8_t state;
	bool active;
};

/* ccc_report.c */
struct ccc_report {
	uint64_t acked_limited_bytes;
	uint64_t delivered_bytes;
	uint32_t cwnd_growth_bytes;
	uint32_t srtt_us;	/* over many round trips: shares by rate count it */
	uint32_t rtt_rounds;	/* that many, in 256ths */
	uint16_t rtt_sample;	/* least since the last message, on the wire */
	uint8_t srtt_rest;	/* of a microsecond that srtt_us is more */
	uint8_t state;
	bool active;
	bool cwnd_limited;	/* the window was the limit at the last ACK */
	struct {
		uint64_t at_us;
		uint64_t delivered_bytes;
		uint32_t cwnd_growth_bytes;
		struct ccc_signals signals;
	} last_notified;
};

/* ccc_rtt.c: round trips by a finer clock than TCP's, which ticks. */
struct ccc_rtt {
	uint64_t sent_us;
	tcp_seq seq;
	bool timing;
	uint32_t srtt_us;
	uint32_t min_us;
};

/* ccc_flow.c: on the way to the granted window. */
struct ccc_cwnd {
	uint16_t ramp;		/* 256ths of a packet an ACK releases towards it */
	uint8_t shed;		/* 256ths of a packet an ACK takes towards it */
	uint8_t rest;		/* of a packet, so released or taken */
	uint32_t acked_rest;	/* bytes of a packet, acknowledged */
};

/* ccc_recovery.c: congestion events. */
struct ccc_recovery {
	uint32_t congestion_epoch;	/* the latest event's */
	uint16_t congestion_events;
	uint16_t timeouts;
	uint16_t spurious_events;
	uint32_t window;	/* in packets, at the latest event */
	tcp_seq loss_end;	/* a timeout is over when this is acknowledged */
	bool in_loss;
	bool in_recovery;
	bool undoable;		/* the latest event has not been undone */
};

/* ccc_shadow.c: the inner algorithm's own window, in bytes. */
struct ccc_shadow {
	uint32_t cwnd;		/* 0: there is none */
	uint32_t ssthresh;
	uint32_t rest;		/* of the acknowledged bytes, when scaled */
	uint32_t epoch;		/* to which it has been brought */
	uint16_t beta;		/* the algorithm's latest reduction, of 65536 */
	uint64_t charged_us;	/* when it was reduced for the flow's own event, */
	bool charged;		/* which the device has not answered */
};

/* cc_ccc.c: the connection's data, with a slot or without. */
struct ccc_flow {
	struct ccc_slot *slot;	/* NULL: on its own */
	struct cc_algo *inner;	/* NULL: the kernel's NewReno without state */
	void *inner_data;
	uint32_t changes;	/* of slots, at the last attempt to take one */
	uint16_t priority;
	bool done;		/* all its data has been acknowledged, with its FIN */
	struct ccc_grant grant;
	struct ccc_report report;
	struct ccc_rtt rtt;
	struct ccc_cwnd cwnd;
	struct ccc_recovery recovery;
	struct ccc_shadow shadow;
};

/* cc_ccc.c: what is asked of TCP and the inner algorithm. */
uint32_t ccc_tcp_queued(const struct tcpcb *tp);
bool	ccc_tcp_in_scope(const struct tcpcb *tp);
void	ccc_tcp_addresses(const struct tcpcb *tp,
	    struct virtio_ccc_report *report);
const char *ccc_inner_name(const struct ccc_flow *flow);
void	ccc_inner_ack(struct cc_var *ccv, struct ccc_flow *flow,
	    ccc_ack_type_t type);
void	ccc_inner_signal(struct cc_var *ccv, struct ccc_flow *flow,
	    ccc_signal_t type);
void	ccc_inner_post_recovery(struct cc_var *ccv, struct ccc_flow *flow);
void	ccc_inner_after_idle(struct cc_var *ccv, struct ccc_flow *flow);
u_int	ccc_report_shift(void);

/* ccc_flow.c */
void	ccc_flow_ack(struct cc_var *ccv, struct ccc_flow *flow,
	    ccc_ack_type_t type);
void	ccc_flow_after_idle(struct cc_var *ccv, struct ccc_flow *flow);
void	ccc_flow_detach(struct tcpcb *tp, struct ccc_flow *flow);
bool	ccc_flow_is_coupled(struct tcpcb *tp, struct ccc_flow *flow);
uint32_t ccc_flow_mss(const struct tcpcb *tp);
uint32_t ccc_flow_una(const struct tcpcb *tp, const struct cc_var *ccv);

/* The flow has a slot, unless the device has gone or wants it back. */
bool	ccc_flow_has_slot(struct tcpcb *tp, struct ccc_flow *flow);

/* ccc_recovery.c */
void	ccc_recovery_first(struct ccc_flow *flow);
void	ccc_recovery_signal_alone(struct cc_var *ccv, struct ccc_flow *flow,
	    ccc_signal_t type);
void	ccc_recovery_acked(const struct cc_var *ccv, struct ccc_flow *flow);
void	ccc_recovery_signal(struct cc_var *ccv, struct ccc_flow *flow,
	    ccc_signal_t type);
void	ccc_recovery_end(struct cc_var *ccv, struct ccc_flow *flow);
void	ccc_recovery_ack(struct cc_var *ccv, struct ccc_flow *flow);

/* ccc_grant.c */
void	ccc_grant_read(const struct tcpcb *tp, struct ccc_flow *flow);
uint32_t ccc_grant_epoch_of(const struct ccc_flow *flow, tcp_seq seq);

/* ccc_shadow.c */
void	ccc_shadow_follow_phase(struct cc_var *ccv, struct ccc_flow *flow);
void	ccc_shadow_follow_epoch(struct cc_var *ccv, struct ccc_flow *flow,
	    bool was_coupled);
uint32_t ccc_shadow_grow(struct cc_var *ccv, struct ccc_flow *flow,
	    ccc_ack_type_t type, bool limited);
void	ccc_shadow_charge(struct cc_var *ccv, struct ccc_flow *flow,
	    ccc_signal_t type);
bool	ccc_shadow_awaits(const struct ccc_flow *flow);
void	ccc_shadow_stop(struct ccc_flow *flow);
void	ccc_shadow_post_recovery(struct cc_var *ccv, struct ccc_flow *flow);

/* ccc_rtt.c */
void	ccc_rtt_ack(const struct tcpcb *tp, struct ccc_flow *flow, tcp_seq ack);
void	ccc_rtt_begin(const struct tcpcb *tp, struct ccc_flow *flow);
uint32_t ccc_rtt_smoothed(const struct tcpcb *tp, const struct ccc_flow *flow);

/* ccc_report.c */
void	ccc_report_first(const struct tcpcb *tp, struct ccc_flow *flow);
void	ccc_report_acked(struct ccc_flow *flow, uint32_t bytes,
	    uint32_t growth_bytes, bool counts_limited);
void	ccc_report_update(const struct tcpcb *tp, struct ccc_flow *flow,
	    tcp_seq una, bool active);
void	ccc_report_last(const struct tcpcb *tp, struct ccc_flow *flow);

#endif /* CCC_FLOW_H */
