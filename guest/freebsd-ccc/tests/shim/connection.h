/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the tests of a flow's logic in user space: one connection, and a device of
 * the test's own.
 */
#ifndef CONNECTION_H
#define CONNECTION_H

#include "../../ccc_flow.h"
#include "kunit/test.h"

#define	MSS	1000u
#define	RTT_US	100000u
#define	LINES	2

#define	EQ(a, b)	KUNIT_EXPECT_EQ(test, (uint64_t)(a), (uint64_t)(b))
#define	LE(a, b)	KUNIT_CHECK(test, (uint64_t)(a), <=, (uint64_t)(b))
#define	GE(a, b)	KUNIT_EXPECT_GE(test, (uint64_t)(a), (uint64_t)(b))

/* The device, as the driver shows it. */
static struct {
	struct ccc_config config;
	struct virtio_ccc_grant_line line[LINES];
	struct virtio_ccc_report report;
	struct virtio_ccc_slot_grant grant;
	struct ccc_slot slot;
	uint32_t changes, offer, instance;
	bool live, stale, taken;
	unsigned int registered, updated, left;
} device;

static struct tcpcb connection;
static struct ccc_flow flow;
struct ccc_slot *
ccc_slot_take(void)
{
	if (!device.live || device.taken)
		return (NULL);
	device.taken = true;
	device.slot.generation = ccc_next_generation(device.slot.generation);
	device.slot.offer = device.offer;
	return (&device.slot);
}

void
ccc_slot_drop(struct ccc_slot *slot)
{
	(void)slot;
	device.taken = false;
}

bool
ccc_slot_is_live(const struct ccc_slot *slot)
{
	return (device.live && slot->offer == device.offer);
}

uint32_t
ccc_slot_changes(void)
{
	return (device.changes);
}

void
ccc_doorbell_send(struct ccc_device *dev, uint16_t op, uint32_t slot,
    uint32_t generation)
{
	(void)dev;
	(void)slot;
	if (generation != device.slot.generation)
		return;
	device.registered += op == VIRTIO_CCC_OP_REGISTER;
	device.updated += op == VIRTIO_CCC_OP_UPDATE;
	device.left += op == VIRTIO_CCC_OP_LEAVE;
}

const struct ccc_config *
ccc_device_config(const struct ccc_device *dev)
{
	(void)dev;
	return (&device.config);
}

const struct virtio_ccc_grant_line *
ccc_device_line(const struct ccc_device *dev, uint16_t line)
{
	(void)dev;
	return (&device.line[line]);
}

uint32_t
ccc_device_instance(const struct ccc_device *dev)
{
	(void)dev;
	return (device.instance);
}

bool
ccc_device_is_stale(const struct ccc_device *dev)
{
	(void)dev;
	return (device.stale);
}

/* What the aggregate grants to a flow of priority 1, in packets. */
static inline void
grant_to(uint16_t line, uint64_t packets)
{
	device.line[line].level = ((packets * MSS) << VIRTIO_CCC_LEVEL_SHIFT) /
	    VIRTIO_CCC_PRIORITY_ONE;
}

static inline void
accept(uint64_t packets)
{
	device.grant.generation = device.slot.generation;
	device.grant.flags = VIRTIO_CCC_G_ACCEPTED;
	device.grant.cap_bytes = VIRTIO_CCC_CAP_NONE;
	device.line[0].flags = VIRTIO_CCC_L_COUPLED;
	device.line[0].ssthresh_level = VIRTIO_CCC_LEVEL_UNSET;
	grant_to(0, packets);
}

/* A connection that is established, has much to send and its window in flight. */
static inline void
begin(uint32_t packets)
{
	memset(&device, 0, sizeof(device));
	memset(&connection, 0, sizeof(connection));
	memset(&flow, 0, sizeof(flow));
	test_inner_takes_pipe = test_out_of_scope = false;
	device.config = (struct ccc_config) { .slots = 1, .grant_lines = LINES,
	    .rate_share = true, .slot_cap = true };
	device.slot.report = &device.report;
	device.slot.grant = &device.grant;
	device.live = true;
	connection = (struct tcpcb) { .snd_cwnd = packets * MSS,
	    .snd_ssthresh = TCP_MAXWIN << TCP_MAX_WINSHIFT,
	    .snd_wnd = 1u << 30, .snd_scale = 14, .snd_una = 1000,
	    .snd_max = 1000 + packets * MSS, .test_mss = MSS,
	    .test_queued = 1u << 30 };
	connection.t_ccv.tp = &connection;
	connection.t_ccv.cc_data = &flow;
	flow.priority = VIRTIO_CCC_PRIORITY_ONE;
	flow.changes = device.changes - 1;
	test_now_us = 1000000;
}

/* An ACK of so many packets, and what TCP sends then. */
static inline void
ack(uint32_t packets)
{
	struct tcpcb *tp = &connection;
	struct cc_var *ccv = &tp->t_ccv;

	ccv->bytes_this_ack = packets * MSS;
	ccv->curack = tp->snd_una + packets * MSS;
	ccv->flags |= CCF_CWND_LIMITED;
	ccc_flow_ack(ccv, &flow, CC_ACK);
	tp->snd_una = ccv->curack;
	if (SEQ_GT(tp->snd_una + tp->snd_cwnd, tp->snd_max))
		tp->snd_max = tp->snd_una + tp->snd_cwnd;
}

/* A round trip, of ACKs for two packets each. */
static inline void
round_trip(void)
{
	uint32_t acks = max_t(uint32_t, connection.snd_cwnd / MSS / 2, 1), i;

	for (i = 0; i < acks; i++) {
		test_now_us += RTT_US / acks;
		if (i == acks - 1)
			connection.t_ccv.flags |= CCF_ABC_SENTAWND;
		ack(2);
	}
}

static inline void
begin_coupled(uint32_t packets, uint64_t granted)
{
	begin(packets);
	ack(2);
	accept(granted);
	ack(2);
}

/* Three duplicates of an ACK. */
static inline void
lose(void)
{
	ccc_recovery_signal(&connection.t_ccv, &flow, CC_NDUPACK);
}

/* All that was sent before is acknowledged. */
static inline void
recover(void)
{
	connection.t_ccv.curack = connection.snd_max;
	ccc_recovery_end(&connection.t_ccv, &flow);
	EXIT_RECOVERY(connection.t_flags);
}

#endif /* CONNECTION_H */
