/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A socket, as far as TCP has the program look at it; the device of its tenant; and
 * what is said of both.
 */
#ifndef CCC_TESTS_TCP_H
#define CCC_TESTS_TCP_H

#include "tests/native/user.h"

static uint64_t bpf_jiffies64(void);
/* Sockets are ours from the beginning: nothing chooses that. */
#define CCC_BPF_CHOOSE_H
#include "bpf/ccc.bpf.c"

#define MSS		1448u
#define RTT_US		30000u
#define WINDOW		140u
#define EPOCH		5u
#define INSTANCE	9u
/* Of virtio_ccc.h; shares are not by rate, so a window is a level. */
#define COUPLED		VIRTIO_CCC_L_COUPLED
#define SLOW_START	VIRTIO_CCC_L_SLOW_START
/* In the tables. */
#define NETNS		77u
#define CGROUP		78u

/* ---- The kernel -------------------------------------------------------- */

static const struct tcp_congestion_ops *const ops = &ccc_reno;
static struct net net = { .net_cookie = NETNS, .ipv4.sysctl_tcp_min_tso_segs = 2 };
static struct net_device device;
static struct dst_entry route = { .dev = &device };
static struct tcp_sock tcp;
static struct sock *const sk = (struct sock *)&tcp;
static struct inet_connection_sock *const icsk = &tcp.inet_conn;
static u64 jiffies;

static uint64_t bpf_jiffies64(void)
{
	return jiffies;
}

u32 tcp_reno_ssthresh(struct sock *of)
{
	return max_t(u32, tcp_sk(of)->snd_cwnd / 2, 2);
}

void tcp_reno_cong_avoid(struct sock *of, u32 ack, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(of);
	u32 before = tp->snd_cwnd;

	if (!tcp_is_cwnd_limited(of))
		return;
	if (tcp_in_slow_start(tp)) {
		tp->snd_cwnd += acked;
		return;
	}
	tp->snd_cwnd_cnt += acked;
	tp->snd_cwnd += tp->snd_cwnd_cnt / before;
	tp->snd_cwnd_cnt %= before;
}

u32 tcp_reno_undo_cwnd(struct sock *of)
{
	return max_t(u32, tcp_sk(of)->snd_cwnd, tcp_sk(of)->prior_cwnd);
}

void cubictcp_init(struct sock *of) { }
u32 cubictcp_recalc_ssthresh(struct sock *of) { return 0; }
void cubictcp_cong_avoid(struct sock *of, u32 ack, u32 acked) { }
void cubictcp_state(struct sock *of, u8 state) { }
void cubictcp_cwnd_event(struct sock *of, enum tcp_ca_event event) { }
void cubictcp_cwnd_event_tx_start(struct sock *of) { }
void cubictcp_acked(struct sock *of, const struct ack_sample *sample) { }

/* ---- The loader and the device ----------------------------------------- */

/* Of the namespace and of the cgroup. */
static struct ccc_table tables[2];
static struct ccc_table *const table = &tables[0];

static void *map_element(void *map, const void *key)
{
	static u32 of_netns = 0, of_cgroup = 1;

	if (map == &ccc_netns)
		return *(const u64 *)key == NETNS ? &of_netns : NULL;
	if (map == &ccc_cgroups)
		return *(const u64 *)key == CGROUP ? &of_cgroup : NULL;
	if (map == &ccc_tables)
		return &tables[*(const u32 *)key];
	return map;	/* the one element of a table's */
}

/* The messages since begin(). */
static struct {
	struct ccc_message message;
	u64 flags;
} told[64];
static u32 messages;
static bool ring_is_full;

static int tell(const void *message, uint64_t flags)
{
	if (ring_is_full)
		return -1;
	told[messages % 64].message = *(const struct ccc_message *)message;
	told[messages++ % 64].flags = flags;
	return 0;
}

/* What the latest message says, of which flow, and whether it wakes the loader. */
static u32 last_op(void)
{
	return messages ? told[(messages - 1) % 64].message.doorbell.op : 0;
}

static u32 last_generation(void)
{
	return told[(messages - 1) % 64].message.doorbell.generation;
}

static bool last_wakes(void)
{
	return messages && told[(messages - 1) % 64].flags == BPF_RB_FORCE_WAKEUP;
}

static void (*others)(void);

static void meanwhile(void)
{
	if (others)
		others();
}

/*
 * The device reads whenever it can, as docs/virtio-ccc.md has it: how often, and
 * how often a report that was being written.
 */
static u32 reads, torn_reads;

static void read_report(void)
{
	static struct virtio_ccc_report before;
	const struct virtio_ccc_report *now = &table->report[0];
	const size_t hot = offsetof(struct virtio_ccc_report, generation);

	if (now->seq & 1)
		return;
	torn_reads += reads && now->seq == before.seq &&
		      memcmp(now, &before, hot);
	before = *now;
	reads++;
}

/* ---- What the tests look at ---------------------------------------------- */

static u32 failures;
static const char *check;

static void expect(const char *what, u64 is, u64 expected)
{
	if (is == expected)
		return;
	failures++;
	printf("%s: %s: %llu, expected %llu\n", check, what,
	       (unsigned long long)is, (unsigned long long)expected);
}

static void expect_between(const char *what, u64 is, u64 least, u64 most)
{
	if (is >= least && is <= most)
		return;
	failures++;
	printf("%s: %s: %llu, expected %llu to %llu\n", check, what,
	       (unsigned long long)is, (unsigned long long)least,
	       (unsigned long long)most);
}

static struct ccc_flow *flow(void)
{
	return &table->flow[ccc_sk(sk)->slot];
}

static struct virtio_ccc_report *report(void)
{
	return &table->report[ccc_sk(sk)->slot];
}

static bool has_slot(void)
{
	return ccc_sk(sk)->generation != 0;
}

static bool is_idle(u32 slot)
{
	return table->control.idle[slot / 64] & ccc_bit_of(slot);
}

static bool is_in_use(u32 slot)
{
	return table->control.in_use[slot / 64] & ccc_bit_of(slot);
}

/* ---- What happens -------------------------------------------------------- */

/* A connection of the namespace's, that has sent nothing yet. */
static void begin(void)
{
	memset(tables, 0, sizeof(tables));
	memset(&tcp, 0, sizeof(tcp));
	messages = reads = torn_reads = 0;
	others = NULL;
	ring_is_full = false;
	jiffies = 1000;
	device.flags = 0;
	for (u32 i = 0; i < 2; i++) {
		tables[i].control.id = 1 + i;
		tables[i].control.tenant = i;
		tables[i].control.lease_us = ~0ull;
		tables[i].status.status = VIRTIO_CCC_EXTENT_ACCEPTED;
		tables[i].status.instance = INSTANCE;
	}
	sk->__sk_common.skc_net.net = &net;
	sk->sk_dst_cache = &route;
	sk->sk_max_pacing_rate = ~0ul;
	icsk->icsk_rto = 200;
	tcp.snd_una = tcp.snd_nxt = tcp.write_seq = 1000000;
	tcp.snd_cwnd = 10;
	tcp.snd_cwnd_clamp = ~0u;
	tcp.snd_ssthresh = TCP_INFINITE_SSTHRESH;
	tcp.mss_cache = MSS;
	tcp.srtt_us = RTT_US << 3;
	tcp.rack.rtt_us = tcp.rtt_min.s[0].v = RTT_US;
	tcp.tcp_mstamp = 1000000;
	tcp.lsndtime = jiffies;
	tcp.is_cwnd_limited = 1;
	ops->init(sk);
}

static void wait_us(u64 us)
{
	tcp.tcp_mstamp += us;
	tcp.tcp_clock_cache = tcp.tcp_mstamp * 1000;
	jiffies += us / 1000;
}

/* There is much to send, and nothing was in flight: so many packets leave. */
static void send(u32 packets)
{
	tcp.write_seq = tcp.snd_nxt + (1u << 30);
	ops->min_tso_segs(sk);
	ops->cwnd_event(sk, CA_EVENT_TX_START);
	tcp.packets_out = tcp.max_packets_out = packets;
	tcp.snd_nxt += packets * MSS;
	tcp.lsndtime = jiffies;
}

static u64 level_of(u64 bytes)
{
	return (bytes << VIRTIO_CCC_LEVEL_SHIFT) / VIRTIO_CCC_PRIORITY_ONE;
}

static struct virtio_ccc_grant_line *line(void)
{
	return &table->line[0];
}

/* The device writes its line. */
static void grant_bytes(u64 bytes, u32 flags, u32 epoch)
{
	line()->seq += 2;
	line()->flags = flags;
	line()->epoch = epoch;
	line()->level = level_of(bytes);
	line()->ssthresh_level = VIRTIO_CCC_LEVEL_UNSET;
}

/* With a part of a packet that is rounded off, or no ACK would be quiet (quiet.h). */
static void grant(u32 packets, u32 flags, u32 epoch)
{
	grant_bytes((u64)packets * MSS + MSS / 2, flags, epoch);
}

static void accept_flow(void)
{
	struct virtio_ccc_slot_grant *slot = &table->grant[ccc_sk(sk)->slot];

	slot->flags = VIRTIO_CCC_G_ACCEPTED;
	slot->generation = flow()->generation;
}

/* In CWR and in recovery TCP's own machinery has the window. */
static bool reduces(void)
{
	return icsk->icsk_ca_state == TCP_CA_CWR ||
	       icsk->icsk_ca_state == TCP_CA_Recovery;
}

static void ack_event(u32 packets, u32 flags)
{
	wait_us(RTT_US * packets / max_t(u32, tcp.snd_cwnd, 1));
	tcp.snd_una += packets * MSS;
	tcp.delivered += packets;
	ops->in_ack_event(sk, flags);
}

/* As many packets are acknowledged, and as many are sent. */
static void ack(u32 packets)
{
	tcp.snd_nxt += packets * MSS;
	ack_event(packets, 0);
	if (!reduces())
		ops->cong_avoid(sk, tcp.snd_una, packets);
	ops->min_tso_segs(sk);
}

static void acks(u32 times)
{
	while (times--)
		ack(2);
}

/* All that was written is sent, and acknowledged. */
static void ack_all(void)
{
	u32 packets = tcp.packets_out;

	tcp.packets_out = 0;
	tcp.write_seq = tcp.snd_nxt;
	tcp.snd_una = tcp.snd_nxt - packets * MSS;
	ack_event(packets, 0);
	if (!reduces())
		ops->cong_avoid(sk, tcp.snd_una, packets);
}

/* TCP asks for a lower window, as it does before it changes its state. */
static u32 ask_ssthresh(void)
{
	tcp.prior_cwnd = tcp.snd_cwnd;
	tcp.snd_ssthresh = ops->ssthresh(sk);
	return tcp.snd_ssthresh;
}

static void enter(u8 state)
{
	if (state == TCP_CA_Loss)
		tcp.snd_cwnd = 1;
	ops->set_state(sk, state);
	icsk->icsk_ca_state = state;
}

static void lose_one(void)
{
	tcp.lost_out = 1;
	ask_ssthresh();
	enter(TCP_CA_Recovery);
}

/* It is over: the window is what TCP's machinery has brought it to. */
static void recover(void)
{
	tcp.lost_out = tcp.sacked_out = 0;
	tcp.snd_cwnd = tcp.packets_out = tcp.snd_ssthresh;
	enter(TCP_CA_Open);
}

static void undo(void)
{
	tcp.lost_out = 0;
	tcp.snd_cwnd = ops->undo_cwnd(sk);
	enter(TCP_CA_Open);
}

/* A flow that is coupled, with what it is granted in flight. */
static void couple(void)
{
	send(10);
	accept_flow();
	grant(WINDOW, COUPLED, EPOCH);
	tcp.snd_cwnd = tcp.packets_out = tcp.max_packets_out = WINDOW;
	tcp.snd_nxt = tcp.snd_una + WINDOW * MSS;
	acks(4);
}

static void lease_ends(void)
{
	table->control.lease_us = tcp.tcp_mstamp;
}

/* ---- Checks, each of a connection of its own ------------------------------- */

struct check {
	const char *name;
	void (*run)(void);
};

#define CHECK(name)	{ #name, name }

static int all_hold(const struct check *checks, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		check = checks[i].name;
		begin();
		checks[i].run();
	}
	return failures != 0;
}

#define ALL_HOLD(checks) all_hold(checks, sizeof(checks) / sizeof((checks)[0]))

#endif /* CCC_TESTS_TCP_H */
