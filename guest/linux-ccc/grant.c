// SPDX-License-Identifier: GPL-2.0
/*
 * Grants are read in place, without waiting for anything.  Nothing the device
 * writes is trusted beyond its range.
 */
#include "device.h"

/* Attempts to read a line that the device is writing. */
#define READ_TRIES	4

static struct virtio_ccc_grant_line *line_of(const struct ccc_device *dev, u16 n)
{
	return &dev->slots.extent[0]->line[n];
}

/* Of the device that writes the lines. */
u32 ccc_grant_instance(const struct ccc_device *dev)
{
	return le32_to_cpu(READ_ONCE(dev->slots.extent[0]->status->instance));
}

static bool read_line(const struct virtio_ccc_grant_line *line,
		      struct ccc_grant *grant)
{
	int try;
	u32 seq;

	for (try = 0; try < READ_TRIES; try++) {
		seq = le32_to_cpu(READ_ONCE(line->seq));
		if (seq & 1) {
			cpu_relax();
			continue;
		}
		virt_rmb();	/* seq before what it guards */
		grant->epoch = le32_to_cpu(READ_ONCE(line->epoch));
		grant->flags = le32_to_cpu(READ_ONCE(line->flags));
		grant->rounding_offset =
			le32_to_cpu(READ_ONCE(line->rounding_offset));
		grant->level = le64_to_cpu(READ_ONCE(line->level));
		grant->ssthresh_level =
			le64_to_cpu(READ_ONCE(line->ssthresh_level));
		grant->report_interval_us =
			le32_to_cpu(READ_ONCE(line->report_interval_us));
		virt_rmb();	/* what it guards before seq again */
		if (seq == le32_to_cpu(READ_ONCE(line->seq))) {
			grant->seq = seq;
			return true;
		}
	}
	return false;
}

/*
 * Remember when a line changed its epoch, seen by whichever flow looks first.
 * The line is read again under the lock: a flow that comes late with an older
 * copy must not turn the epoch back.
 */
static void update_epoch(struct ccc_device *dev, u16 line)
{
	struct ccc_epoch *epoch = &dev->epochs.line[line];
	u32 instance, number;

	spin_lock_bh(&dev->epochs.lock);
	instance = ccc_grant_instance(dev);
	number = le32_to_cpu(READ_ONCE(line_of(dev, line)->epoch));
	if (!epoch->seen || epoch->instance != instance) {
		/* Nothing is known of a reduction by this device yet. */
		WRITE_ONCE(epoch->seen, true);
		epoch->since_us = 0;
		WRITE_ONCE(epoch->instance, instance);
		WRITE_ONCE(epoch->number, number);
	} else if (epoch->number != number) {
		epoch->since_us = tcp_clock_us();
		WRITE_ONCE(epoch->number, number);
	}
	spin_unlock_bh(&dev->epochs.lock);
}

static void watch_epoch(struct ccc_device *dev, u16 line, u32 number)
{
	const struct ccc_epoch *epoch = &dev->epochs.line[line];

	if (!READ_ONCE(epoch->seen) || READ_ONCE(epoch->number) != number ||
	    READ_ONCE(epoch->instance) != ccc_grant_instance(dev))
		update_epoch(dev, line);
}

static bool is_in_force(const struct ccc_device *dev,
			const struct ccc_grant *grant)
{
	if (!(grant->flags & VIRTIO_CCC_L_COUPLED))
		return false;
	if ((grant->flags & VIRTIO_CCC_L_RATE) && !dev->config.rate_share)
		return false;
	return grant->level != VIRTIO_CCC_LEVEL_UNSET;
}

/* Whether the device has accepted the slot's flow; behind which line. */
bool ccc_grant_is_accepted(const struct ccc_slot *slot, u16 *line)
{
	const struct virtio_ccc_slot_grant *grant = slot->grant;
	const struct ccc_device *dev = slot->dev;

	if (le32_to_cpu(READ_ONCE(grant->generation)) != slot->generation)
		return false;
	virt_rmb();	/* the device writes the generation last */
	*line = le16_to_cpu(READ_ONCE(grant->line));
	return (le16_to_cpu(READ_ONCE(grant->flags)) & VIRTIO_CCC_G_ACCEPTED) &&
	       *line < dev->config.grant_lines &&
	       READ_ONCE(dev->slots.extent[0]->use.accepted);
}

/* The flow's part of @level, in packets. */
static u32 part_of(const struct ccc_grant *grant, u64 level, u32 mss, u32 offset)
{
	u32 packets = ccc_grant_packets(level, grant->units, mss, offset);

	return ccc_grant_capped(packets, grant->cap_bytes, mss);
}

u64 ccc_grant_cap(const struct ccc_slot *slot)
{
	return slot->dev->config.slot_cap ?
		       le64_to_cpu(READ_ONCE(slot->grant->cap_bytes)) :
		       VIRTIO_CCC_CAP_NONE;
}

/*
 * The line has not been written since it was read, and is divided by the same:
 * so is the flow's part.  That is most often so, for each ACK.
 */
static bool is_unchanged(const struct ccc_slot *slot,
			 const struct ccc_grant *grant, u16 line, u16 priority,
			 u32 srtt_us, u32 mss)
{
	bool rate = grant->flags & VIRTIO_CCC_L_RATE;

	return grant->coupled && line == grant->line &&
	       le32_to_cpu(READ_ONCE(line_of(slot->dev, line)->seq)) ==
		       grant->seq &&
	       mss == grant->mss && ccc_grant_cap(slot) == grant->cap_bytes &&
	       ccc_grant_units(priority, srtt_us, rate) == grant->units;
}

static void divide(const struct ccc_slot *slot, struct ccc_grant *grant,
		   u16 priority, u32 srtt_us, u32 mss)
{
	u32 offset = slot->rounding_offset + grant->rounding_offset;
	u64 level = grant->ssthresh_level;

	grant->units = ccc_grant_units(priority, srtt_us,
				       grant->flags & VIRTIO_CCC_L_RATE);
	grant->cwnd_bytes = min(ccc_grant_bytes(grant->level, grant->units),
				grant->cap_bytes);
	grant->mss = mss;
	grant->part = part_of(grant, grant->level, mss, offset);
	grant->begin = ccc_grant_begin(grant->part, mss, offset);
	grant->cwnd = grant->part;
	grant->ssthresh = TCP_INFINITE_SSTHRESH;
	if (level != VIRTIO_CCC_LEVEL_UNSET)
		grant->ssthresh = max(part_of(grant, level, mss, offset), 2u);
}

/*
 * The window of one flow in the place of all behind the line, in packets; 0 if the
 * device does not say.  It is read by itself: nothing else has to be of the same
 * moment.
 */
u32 ccc_grant_aggregate(const struct ccc_slot *slot,
			const struct ccc_grant *grant, u32 srtt_us)
{
	const struct virtio_ccc_grant_line *line = line_of(slot->dev, grant->line);
	u64 level = le64_to_cpu(READ_ONCE(line->aggregate_level));
	u64 units = ccc_grant_units(VIRTIO_CCC_PRIORITY_ONE, srtt_us,
				    grant->flags & VIRTIO_CCC_L_RATE);

	return ccc_grant_packets(level, units, grant->mss, 0);
}

/* Growth comes in small steps, and reductions with an epoch. */
static bool is_redivided(const struct ccc_grant *before,
			 const struct ccc_grant *now)
{
	return now->epoch == before->epoch &&
	       !(now->flags & VIRTIO_CCC_L_SLOW_START) &&
	       ccc_level_jumps(before->level, now->level);
}

/* Takes over what was read of a line. */
static void take_line(struct ccc_grant *grant, const struct ccc_grant *now)
{
	grant->level = now->level;
	grant->ssthresh_level = now->ssthresh_level;
	grant->flags = now->flags;
	grant->epoch = now->epoch;
	grant->rounding_offset = now->rounding_offset;
	grant->report_interval_us = now->report_interval_us;
	grant->seq = now->seq;
}

/* While the device is writing, what was read before stays in force. */
static void refresh(const struct ccc_slot *slot, struct ccc_grant *grant,
		    u16 line, u16 priority, u32 srtt_us, u32 mss)
{
	struct ccc_device *dev = slot->dev;
	struct ccc_grant now;

	grant->redivided = false;
	if (read_line(line_of(dev, line), &now)) {
		grant->redivided = is_redivided(grant, &now);
		take_line(grant, &now);
		grant->line = line;
		grant->cap_bytes = ccc_grant_cap(slot);
		WRITE_ONCE(grant->coupled, is_in_force(dev, grant));
		watch_epoch(dev, line, grant->epoch);
	}
	if (grant->coupled)
		divide(slot, grant, priority, srtt_us, mss);
}

/*
 * Look at what is granted to a slot, and what that is for its flow.
 *
 * The slot may have been withdrawn since the flow looked: its memory stays, and
 * once it is cleared no generation is that of the flow.
 */
void ccc_grant_refresh(const struct ccc_slot *slot, struct ccc_grant *grant,
		       u16 priority, u32 srtt_us, u32 mss)
{
	struct ccc_device *dev = slot->dev;
	u16 line;

	if (READ_ONCE(dev->doorbell.stale) || !ccc_grant_is_accepted(slot, &line)) {
		WRITE_ONCE(grant->coupled, false);
		return;
	}
	if (is_unchanged(slot, grant, line, priority, srtt_us, mss)) {
		grant->cwnd = grant->part;
		grant->redivided = false;
		watch_epoch(dev, line, grant->epoch);
		return;
	}
	refresh(slot, grant, line, priority, srtt_us, mss);
}

/* The epoch, for the event of a segment sent at that time. */
u32 ccc_grant_epoch_at(struct ccc_device *dev, const struct ccc_grant *grant,
		       u64 sent_us)
{
	const struct ccc_epoch *epoch = &dev->epochs.line[grant->line];
	u32 number;

	spin_lock_bh(&dev->epochs.lock);
	number = ccc_epoch_of_segment(epoch->number, epoch->since_us, sent_us);
	spin_unlock_bh(&dev->epochs.lock);
	return number;
}
