// SPDX-License-Identifier: GPL-2.0
/*
 * Grants are read in place, without waiting for anything.  Nothing the device
 * writes is trusted beyond its range.
 */
#include "device.h"

/* Attempts to read a line that the device is writing. */
#define CCC_READ_TRIES		4

static bool ccc_line_read(const struct virtio_ccc_grant_line *line,
			  struct ccc_grant_view *view)
{
	int try;
	u32 seq;

	for (try = 0; try < CCC_READ_TRIES; try++) {
		seq = le32_to_cpu(READ_ONCE(line->seq));
		if (seq & 1) {
			cpu_relax();
			continue;
		}
		virt_rmb();	/* seq before what it guards */
		view->epoch = le32_to_cpu(READ_ONCE(line->epoch));
		view->flags = le32_to_cpu(READ_ONCE(line->flags));
		view->phase = le32_to_cpu(READ_ONCE(line->rounding_offset));
		view->level = le64_to_cpu(READ_ONCE(line->level));
		view->ssthresh_level =
			le64_to_cpu(READ_ONCE(line->ssthresh_level));
		virt_rmb();	/* what it guards before seq again */
		if (seq == le32_to_cpu(READ_ONCE(line->seq)))
			return true;
	}
	return false;
}

/*
 * Remember when a line changed its epoch, seen by whichever flow looks first.
 * The line is read again under the lock: a flow that comes late with an older
 * copy must not turn the epoch back.
 */
static void ccc_watch_update(struct ccc_dev *dev, u16 n)
{
	struct ccc_watch *watch = &dev->watch[n];
	u32 instance, epoch;

	spin_lock_bh(&dev->watch_lock);
	instance = le32_to_cpu(READ_ONCE(dev->chunk[0]->head->instance));
	epoch = le32_to_cpu(READ_ONCE(ccc_lines(dev)[n].epoch));
	if (!watch->seen || watch->instance != instance) {
		/* Nothing is known of a reduction by this device yet. */
		watch->seen = true;
		watch->since_us = 0;
		WRITE_ONCE(watch->instance, instance);
		WRITE_ONCE(watch->epoch, epoch);
	} else if (watch->epoch != epoch) {
		watch->since_us = ccc_now_us();
		WRITE_ONCE(watch->epoch, epoch);
	}
	spin_unlock_bh(&dev->watch_lock);
}

static void ccc_watch_look(struct ccc_dev *dev, u16 n, u32 epoch)
{
	const struct ccc_watch *watch = &dev->watch[n];
	u32 instance = le32_to_cpu(READ_ONCE(dev->chunk[0]->head->instance));

	if (!READ_ONCE(watch->seen) || READ_ONCE(watch->epoch) != epoch ||
	    READ_ONCE(watch->instance) != instance)
		ccc_watch_update(dev, n);
}

static bool ccc_view_in_force(const struct ccc_dev *dev,
			      const struct ccc_grant_view *view)
{
	if (!(view->flags & VIRTIO_CCC_L_COUPLED))
		return false;
	if ((view->flags & VIRTIO_CCC_L_RATE) && !dev->rate_share)
		return false;
	return view->level != VIRTIO_CCC_LEVEL_UNSET;
}

static bool ccc_slot_accepted(const struct ccc_slot *slot, u16 *line)
{
	const struct virtio_ccc_slot_grant *grant = slot->grant;

	if (le32_to_cpu(READ_ONCE(grant->generation)) != slot->generation)
		return false;
	virt_rmb();	/* the device writes the generation last */
	*line = le16_to_cpu(READ_ONCE(grant->line));
	return (le16_to_cpu(READ_ONCE(grant->flags)) & VIRTIO_CCC_G_ACCEPTED) &&
	       *line < slot->dev->lines && READ_ONCE(slot->dev->chunk[0]->live);
}

/*
 * Look at what is granted to a slot.  While the device is writing, what was
 * read before stays in force.
 */
void ccc_grant_refresh(struct ccc_slot *slot)
{
	struct ccc_dev *dev = slot->dev;
	struct ccc_grant_view view = {};

	if (READ_ONCE(dev->stale) || !ccc_slot_live(slot) ||
	    !ccc_slot_accepted(slot, &view.line)) {
		WRITE_ONCE(slot->coupled, false);
		return;
	}
	if (!ccc_line_read(&ccc_lines(dev)[view.line], &view))
		return;
	view.cap = dev->slot_cap ? le64_to_cpu(READ_ONCE(slot->grant->cap_bytes)) :
				   VIRTIO_CCC_CAP_NONE;
	slot->view = view;
	ccc_watch_look(dev, view.line, view.epoch);
	WRITE_ONCE(slot->coupled, ccc_view_in_force(dev, &view));
}

/* The epoch, for the event of a segment sent at that time. */
u32 ccc_epoch_at(struct ccc_slot *slot, u64 sent_us)
{
	struct ccc_watch *watch = &slot->dev->watch[slot->view.line];
	u32 epoch;

	spin_lock_bh(&slot->dev->watch_lock);
	epoch = ccc_event_epoch(watch->epoch, watch->since_us, sent_us);
	spin_unlock_bh(&slot->dev->watch_lock);
	return epoch;
}
