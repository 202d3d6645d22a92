/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which sockets are flows of which tenant, and from when to when they have a slot.
 */
#include "tests/native/tcp.h"

/* The socket's cgroup, below one below the root. */
static struct kernfs_node nodes[] = { { 1 }, { 2 }, { 3 } };
static struct cgroup root = { .kn = &nodes[0] };
static struct cgroup middle = { .level = 1, .kn = &nodes[1] };
static struct cgroup own = {
	.level = 2,
	.kn = &nodes[2],
	.ancestors = { &root, &middle, &own },
};

static void be_in_a_cgroup_below(u64 id)
{
	nodes[1].id = id;
	sk->sk_cgrp_data.cgroup = &own;
}

static void a_socket_of_a_namespace_is_its_tenant_s(void)
{
	be_in_a_cgroup_below(CGROUP + 1);
	send(10);
	expect("slots of the namespace's", tables[0].control.in_use[0], 1);
	expect("slots of the cgroup's", tables[1].control.in_use[0], 0);
}

static void a_cgroup_comes_before_a_namespace(void)
{
	be_in_a_cgroup_below(CGROUP);
	send(10);
	expect("slots of the namespace's", tables[0].control.in_use[0], 0);
	expect("slots of the cgroup's", tables[1].control.in_use[0], 1);
	expect("tenant of the message", told[0].message.tenant, 1);
}

/* Why a socket that sends has no slot. */
static void it_sends_to_this_host(void) { device.flags = IFF_LOOPBACK; }
static void it_has_no_route(void) { sk->sk_dst_cache = NULL; }
static void the_lease_is_over(void) { lease_ends(); }
static void the_extent_is_not_accepted(void) { table->status.status = 0; }

static void all_slots_are_in_use(void)
{
	memset(table->control.in_use, 0xff, sizeof(table->control.in_use));
}

static void it_is_nobody_s(void)
{
	static struct net other = { .net_cookie = NETNS + 1 };

	sk->__sk_common.skc_net.net = &other;
}

static const struct check reasons[] = {
	CHECK(it_sends_to_this_host),
	CHECK(it_has_no_route),
	CHECK(the_lease_is_over),
	CHECK(the_extent_is_not_accepted),
	CHECK(all_slots_are_in_use),
	CHECK(it_is_nobody_s),
};

static void a_socket_that_is_no_flow_is_the_kernel_s(void)
{
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
		check = reasons[i].name;
		begin();
		reasons[i].run();
		send(10);
		expect("it has a slot", has_slot(), false);
		acks(5);
		expect("window after a round trip", tcp.snd_cwnd, 20);
		tcp.snd_cwnd = 50;
		expect("threshold", ask_ssthresh(), 25);
		enter(TCP_CA_Recovery);
		tcp.snd_cwnd = 25;
		undo();
		expect("window once it is undone", tcp.snd_cwnd, 50);
		expect("messages", messages, 0);
		ops->release(sk);
	}
}

static void who_sends_looks_for_a_slot_now_and_then(void)
{
	table->status.status = VIRTIO_CCC_EXTENT_PENDING;
	send(10);
	table->status.status = VIRTIO_CCC_EXTENT_ACCEPTED;
	ack(1);
	expect("it has a slot at once", has_slot(), false);
	wait_us(CCC_LOOK_US);
	ack(1);
	expect("it has a slot", has_slot(), true);
	expect("operation", last_op(), VIRTIO_CCC_OP_REGISTER);
}

static void one_that_begins_to_be_ours_while_it_sends_is_a_flow(void)
{
	tcp.packets_out = 10;
	tcp.snd_nxt += 10 * MSS;
	tcp.write_seq = tcp.snd_nxt + (1u << 30);
	ops->init(sk);
	ack(1);
	expect("it has a slot", has_slot(), true);
}

static void one_that_was_restored_while_it_sent_is_a_flow(void)
{
	tcp.write_seq += 1u << 30;
	tcp.packets_out = 10;
	tcp.snd_nxt += 10 * MSS;
	acks(2);
	expect("it has a slot", has_slot(), true);
}

static void a_vanished_peer_s_socket_looks_once_it_is_back(void)
{
	icsk->icsk_ca_state = TCP_CA_Loss;
	send(1);
	expect("it has a slot", has_slot(), false);
	ack(1);
	expect("it has a slot once there is an ACK", has_slot(), true);
}

static void a_flow_that_has_nothing_on_its_way_parks(void)
{
	u32 generation;

	couple();
	generation = flow()->generation;
	expect("it has parked while it sends", is_idle(0), false);
	ack_all();
	expect("it has parked", is_idle(0), true);
	expect("it has a slot", has_slot(), false);
	expect("the slot is in use", is_in_use(0), true);
	wait_us(50000);
	send(10);
	expect("it has parked once it goes on", is_idle(0), false);
	expect("generation", flow()->generation, generation);
	expect("it has a slot then", has_slot(), true);
}

/* As TCP's calls are where the last ACK comes while it reduces, or undoes that. */
static void one_that_reduces_parks_too(void)
{
	couple();
	lose_one();
	ack_all();
	expect("it has parked with the ACK", is_idle(0), true);
	ops->set_state(sk, TCP_CA_Open);
	expect("it has parked with the state", is_idle(0), true);
	ops->undo_cwnd(sk);
	expect("it has parked with what is undone", is_idle(0), true);
	ops->ssthresh(sk);
	expect("it has parked with the threshold", is_idle(0), true);
}

static void a_flow_whose_peer_has_vanished_parks(void)
{
	couple();
	tcp.lost_out = WINDOW;
	ask_ssthresh();
	for (u32 timeouts = 0; timeouts <= CCC_DEAF_TIMEOUTS; timeouts++) {
		icsk->icsk_retransmits = timeouts;
		enter(TCP_CA_Loss);
		expect("it has parked", is_idle(0),
		       timeouts == CCC_DEAF_TIMEOUTS);
	}
}

static void at_its_end_a_flow_gives_its_slot_back(void)
{
	couple();
	ops->release(sk);
	expect("the slot is in use", is_in_use(0), false);
	expect("state", report()->state, VIRTIO_CCC_STATE_FREE);
	expect("operation", last_op(), VIRTIO_CCC_OP_LEAVE);
	expect("the loader is woken", last_wakes(), true);
	expect("it has a slot", has_slot(), false);
}

static void at_its_end_one_that_has_parked_does_so_too(void)
{
	couple();
	ack_all();
	ops->release(sk);
	expect("the slot is in use", is_in_use(0), false);
	expect("it has parked", is_idle(0), false);
	expect("state", report()->state, VIRTIO_CCC_STATE_FREE);
	expect("operation", last_op(), VIRTIO_CCC_OP_LEAVE);
}

static void the_next_flow_of_a_slot_is_another(void)
{
	u32 generation;

	couple();
	generation = flow()->generation;
	ops->release(sk);
	ops->init(sk);
	tcp.packets_out = 0;
	send(10);
	expect("slot", flow()->slot, 0);
	expect("it has the same generation", flow()->generation == generation,
	       false);
	expect("it is coupled by the other's grant", flow()->grant.coupled, false);
}

static const struct check checks[] = {
	CHECK(a_socket_of_a_namespace_is_its_tenant_s),
	CHECK(a_cgroup_comes_before_a_namespace),
	CHECK(a_socket_that_is_no_flow_is_the_kernel_s),
	CHECK(who_sends_looks_for_a_slot_now_and_then),
	CHECK(one_that_begins_to_be_ours_while_it_sends_is_a_flow),
	CHECK(one_that_was_restored_while_it_sent_is_a_flow),
	CHECK(a_vanished_peer_s_socket_looks_once_it_is_back),
	CHECK(a_flow_that_has_nothing_on_its_way_parks),
	CHECK(one_that_reduces_parks_too),
	CHECK(a_flow_whose_peer_has_vanished_parks),
	CHECK(at_its_end_a_flow_gives_its_slot_back),
	CHECK(at_its_end_one_that_has_parked_does_so_too),
	CHECK(the_next_flow_of_a_slot_is_another),
};

int main(void)
{
	return ALL_HOLD(checks);
}
