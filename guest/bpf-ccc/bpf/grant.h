/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Grants are read in place, without waiting for anything.
 */
#ifndef CCC_BPF_GRANT_H
#define CCC_BPF_GRANT_H

#include "flow.h"

/* Attempts to read a line that the device is writing. */
#define CCC_READ_TRIES	4

/* What was loaded or stored before is so before what comes after. */
static inline void ccc_barrier(void)
{
#ifdef __TARGET_ARCH_x86
	barrier();	/* the processor keeps both in order */
#else
	u64 full = 0, before;

	/* Only one that fetches is: what it fetches has to be of use. */
	before = __sync_fetch_and_add(&full, 1);
	barrier_var(before);
#endif
}

#define READ_FIELD(field)	(*(volatile typeof(field) *)&(field))

/* What the device has written there, in one piece. */
static inline bool read_line(const struct virtio_ccc_grant_line *line,
			     struct ccc_line *read)
{
	int try;
	u32 seq;

	for (try = 0; try < CCC_READ_TRIES; try++) {
		seq = READ_FIELD(line->seq);
		ccc_barrier();
		read->seq = seq;
		read->epoch = READ_FIELD(line->epoch);
		read->flags = READ_FIELD(line->flags);
		read->rounding_offset = READ_FIELD(line->rounding_offset);
		read->report_interval_us =
			READ_FIELD(line->report_interval_us);
		read->level = READ_FIELD(line->level);
		read->ssthresh_level = READ_FIELD(line->ssthresh_level);
		ccc_barrier();
		if (!(seq & 1) && seq == READ_FIELD(line->seq))
			return true;
	}
	return false;
}

/*
 * Remember where a new epoch begins: a segment of this flow that is sent from
 * now on is of the new one, an earlier one not.
 */
static inline void watch_epoch(const struct ccc_tcp *tcp, u32 instance,
			       struct ccc_grant *grant, u32 epoch)
{
	if (!grant->seen || grant->instance != instance) {
		/* Nothing is known of a reduction by this device yet. */
		grant->seen = 1;
		grant->instance = instance;
		grant->epoch_known = 0;
	} else if (grant->epoch != epoch) {
		grant->epoch_known = 1;
		grant->epoch_begin = tcp->snd_nxt;
	}
	grant->epoch = epoch;
}

/*
 * Once more than all before it was acknowledged it need not be kept, and wraps: an
 * event at the ACK of the last segment before it is of that segment.
 */
static inline void forget_epoch(const struct ccc_tcp *tcp,
				struct ccc_grant *grant)
{
	if (grant->epoch_known && seq_before(grant->epoch_begin, tcp->snd_una))
		grant->epoch_known = 0;
}

/* Whether the device has accepted the slot's flow; behind which line. */
static inline bool is_accepted(const struct ccc_table *table,
			       const struct ccc_flow *flow, u32 *line)
{
	const struct virtio_ccc_slot_grant *grant =
		&table->grant[ccc_slot_of(flow)];

	if (READ_FIELD(grant->generation) != flow->generation)
		return false;
	ccc_barrier();	/* the device writes the generation last */
	*line = READ_FIELD(grant->line);
	return (READ_FIELD(grant->flags) & VIRTIO_CCC_G_ACCEPTED) &&
	       *line < CCC_LINES;
}

static inline u64 units_of(const struct ccc_flow *flow, u32 flags)
{
	return ccc_grant_units(flow->report.now.priority, flow->report.srtt_us,
			       flags & VIRTIO_CCC_L_RATE);
}

/* The flow's part of the levels. */
static inline void divide(struct ccc_flow *flow, u32 mss)
{
	struct ccc_grant *grant = &flow->grant;
	u32 offset = ccc_rounding_offset(flow->slot) + grant->rounding_offset;
	u64 units = units_of(flow, grant->flags), level = grant->ssthresh_level;

	grant->units = units;
	grant->mss = mss;
	grant->cwnd_bytes = ccc_grant_bytes(grant->level, units);
	grant->granted = ccc_grant_packets(grant->level, units, mss, offset);
	grant->begin = ccc_grant_begin(grant->granted, mss, offset);
	grant->ssthresh = TCP_INFINITE_SSTHRESH;
	if (level != VIRTIO_CCC_LEVEL_UNSET)
		grant->ssthresh = max_t(
			u32, ccc_grant_packets(level, units, mss, offset), 2);
}

/*
 * The window of one flow in the place of all behind the line, in packets; 0 if the
 * device does not say.  It is read by itself: nothing else has to be of the same
 * moment.
 */
static inline u32 ccc_grant_aggregate(const struct ccc_table *table,
				      const struct ccc_flow *flow)
{
	const struct ccc_grant *grant = &flow->grant;
	u64 units = ccc_grant_units(VIRTIO_CCC_PRIORITY_ONE,
				    flow->report.srtt_us,
				    grant->flags & VIRTIO_CCC_L_RATE);

	return ccc_grant_packets(
		READ_FIELD(table->line[grant->line & (CCC_LINES - 1)].aggregate_level),
		units, grant->mss, 0);
}

/* Growth comes in small steps, and reductions with an epoch. */
static inline bool is_redivided(const struct ccc_grant *before,
				const struct ccc_line *now)
{
	return now->epoch == before->epoch &&
	       !(now->flags & VIRTIO_CCC_L_SLOW_START) &&
	       ccc_level_jumps(before->level, now->level);
}

/* The line is another than at the last look. */
static inline void follow_line(struct ccc_grant *grant, u32 line,
			       const struct ccc_line *read,
			       const struct ccc_tcp *tcp, u32 instance)
{
	grant->redivided = is_redivided(grant, read);
	watch_epoch(tcp, instance, grant, read->epoch);
	grant->line = line;
	grant->seq = read->seq;
	grant->flags = read->flags;
	grant->rounding_offset = read->rounding_offset;
	grant->report_interval_us = read->report_interval_us;
	grant->level = read->level;
	grant->ssthresh_level = read->ssthresh_level;
	grant->coupled = (read->flags & VIRTIO_CCC_L_COUPLED) &&
			 read->level != VIRTIO_CCC_LEVEL_UNSET;
}

/* Neither the line nor the flow's part of it is another than at the last look. */
static inline bool is_known(const struct ccc_table *table,
			    const struct ccc_flow *flow, u32 line, u32 mss)
{
	const struct ccc_grant *grant = &flow->grant;

	return grant->coupled && grant->line == line && grant->mss == mss &&
	       grant->seq == READ_FIELD(table->line[line & (CCC_LINES - 1)].seq) &&
	       grant->instance == READ_FIELD(table->status.instance) &&
	       grant->units == units_of(flow, grant->flags);
}

/*
 * Look at what is granted to the flow; whether it is coupled.  While the device is
 * writing, what was read before stays in force.
 */
__weak int ccc_grant_refresh(struct ccc_table *table, struct ccc_flow *flow,
			     const struct ccc_tcp *tcp)
{
	struct ccc_grant *grant;
	struct ccc_line read;
	u32 line = 0;

	if (!table || !flow || !tcp)
		return 0;
	grant = &flow->grant;
	if (!ccc_table_is_live(table, tcp->now_us) ||
	    !is_accepted(table, flow, &line)) {
		grant->coupled = 0;
		return 0;
	}
	forget_epoch(tcp, grant);
	grant->redivided = 0;
	if (!is_known(table, flow, line, tcp->mss)) {
		if (read_line(&table->line[line & (CCC_LINES - 1)], &read))
			follow_line(grant, line, &read, tcp,
				    READ_FIELD(table->status.instance));
		if (grant->coupled)
			divide(flow, tcp->mss);
	}
	grant->cwnd = grant->granted;
	return grant->coupled;
}

/* The epoch, for the event of a segment that begins at @seq. */
static inline u32 ccc_grant_epoch_at(const struct ccc_grant *grant, u32 seq)
{
	bool before = grant->epoch_known && seq_before(seq, grant->epoch_begin);

	return before ? grant->epoch - 1 : grant->epoch;
}

#endif /* CCC_BPF_GRANT_H */
