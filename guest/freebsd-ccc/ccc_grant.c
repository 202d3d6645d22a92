/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Grants are read in place, without waiting for anything.  Nothing the device
 * writes is trusted beyond its range.
 */
#include "ccc_flow.h"

/* Attempts to read a line that the device is writing. */
#define	READ_TRIES	4

static bool
read_line(const struct virtio_ccc_grant_line *line, struct ccc_grant *grant)
{
	uint32_t seq;
	int try;

	for (try = 0; try < READ_TRIES; try++) {
		seq = le32toh(atomic_load_32(&line->seq));
		if ((seq & 1) != 0) {
			cpu_spinwait();
			continue;
		}
		atomic_thread_fence_acq();	/* seq before what it guards */
		grant->epoch = le32toh(atomic_load_32(&line->epoch));
		grant->flags = le32toh(atomic_load_32(&line->flags));
		grant->rounding_offset =
		    le32toh(atomic_load_32(&line->rounding_offset));
		grant->report_interval_us =
		    le32toh(atomic_load_32(&line->report_interval_us));
		grant->level = le64toh(atomic_load_64(&line->level));
		grant->ssthresh_level =
		    le64toh(atomic_load_64(&line->ssthresh_level));
		atomic_thread_fence_acq();	/* what it guards before seq */
		if (seq == le32toh(atomic_load_32(&line->seq)))
			return (true);
	}
	return (false);
}

static bool
is_in_force(const struct ccc_config *config, const struct ccc_grant *grant)
{
	if ((grant->flags & VIRTIO_CCC_L_COUPLED) == 0)
		return (false);
	if ((grant->flags & VIRTIO_CCC_L_RATE) != 0 && !config->rate_share)
		return (false);
	return (grant->level != VIRTIO_CCC_LEVEL_UNSET);
}

/* Whether the device has accepted the slot's flow; behind which line. */
static bool
is_accepted(const struct ccc_slot *slot, uint16_t *line)
{
	const struct virtio_ccc_slot_grant *grant = slot->grant;

	if (le32toh(atomic_load_32(&grant->generation)) != slot->generation)
		return (false);
	atomic_thread_fence_acq();	/* the generation is written last */
	*line = le16toh(atomic_load_16(&grant->line));
	return ((le16toh(atomic_load_16(&grant->flags)) &
	    VIRTIO_CCC_G_ACCEPTED) != 0 &&
	    *line < ccc_device_config(slot->dev)->grant_lines);
}

/* The flow's part of @level, in packets. */
static uint32_t
part_of(const struct ccc_slot *slot, const struct ccc_grant *grant,
    uint64_t level, uint32_t mss)
{
	uint32_t packets = ccc_grant_packets(level, grant->units, mss,
	    slot->rounding_offset + grant->rounding_offset);

	return (ccc_grant_capped(packets, grant->cap_bytes, mss));
}

static void
divide(const struct tcpcb *tp, const struct ccc_flow *flow,
    struct ccc_grant *grant)
{
	uint32_t mss = ccc_flow_mss(tp);

	grant->units = ccc_grant_units(flow->priority, flow->report.srtt_us,
	    (grant->flags & VIRTIO_CCC_L_RATE) != 0);
	grant->cwnd = part_of(flow->slot, grant, grant->level, mss);
	grant->ssthresh = UINT32_MAX;
	if (grant->ssthresh_level != VIRTIO_CCC_LEVEL_UNSET)
		grant->ssthresh = max_t(uint32_t, part_of(flow->slot, grant,
		    grant->ssthresh_level, mss), CCC_CWND_MIN);
}

/* Growth comes in small steps, and reductions with an epoch. */
static bool
is_redivided(const struct ccc_grant *before, const struct ccc_grant *now)
{
	return (before->coupled && now->epoch == before->epoch &&
	    (now->flags & VIRTIO_CCC_L_SLOW_START) == 0 &&
	    ccc_level_jumps(before->level, now->level));
}

/*
 * Which of the flow's data is of the present epoch: nothing that was sent
 * before the flow saw it.  Of a device that has begun anew no reduction is known.
 */
static void
follow_epoch(const struct tcpcb *tp, const struct ccc_grant *before,
    struct ccc_grant *now)
{
	if (!before->coupled || now->instance != before->instance) {
		now->sent.known = false;
	} else if (now->epoch != before->epoch) {
		now->sent.from = tp->snd_max;
		now->sent.known = true;
	} else if (now->sent.known && SEQ_GEQ(tp->snd_una, now->sent.from)) {
		now->sent.known = false;
	}
}

/*
 * Look at what is granted to the slot, and what that is for its flow.  While the
 * device is writing, what was read before stays in force.
 */
void
ccc_grant_read(const struct tcpcb *tp, struct ccc_flow *flow)
{
	const struct ccc_slot *slot = flow->slot;
	const struct ccc_config *config = ccc_device_config(slot->dev);
	struct ccc_grant *grant = &flow->grant;
	struct ccc_grant now = *grant;

	if (ccc_device_is_stale(slot->dev) || !is_accepted(slot, &now.line)) {
		grant->coupled = false;
		return;
	}
	if (read_line(ccc_device_line(slot->dev, now.line), &now)) {
		now.cap_bytes = config->slot_cap ?
		    le64toh(atomic_load_64(&slot->grant->cap_bytes)) :
		    VIRTIO_CCC_CAP_NONE;
		now.instance = ccc_device_instance(slot->dev);
		now.coupled = is_in_force(config, &now);
		follow_epoch(tp, grant, &now);
	} else {
		now = *grant;
	}
	now.redivided = is_redivided(grant, &now);
	if (now.coupled)
		divide(tp, flow, &now);
	*grant = now;
}

/* The epoch, for the event of the segment that begins at @seq. */
uint32_t
ccc_grant_epoch_of(const struct ccc_flow *flow, tcp_seq seq)
{
	const struct ccc_grant *grant = &flow->grant;

	if (!grant->sent.known || SEQ_GEQ(seq, grant->sent.from))
		return (grant->epoch);
	return (grant->epoch - 1);
}
