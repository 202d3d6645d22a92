// SPDX-License-Identifier: GPL-2.0
/*
 * Messages to the device.  One only says "look at this slot": it may be lost, and
 * the device then looks at all of them.
 */
#include <linux/scatterlist.h>

#include "device.h"

/* Messages taken back at one time: more than are added, but no long work. */
#define CCC_RECLAIM_BUDGET	64

static void ccc_bell_reclaim(struct ccc_dev *dev)
{
	struct virtio_ccc_doorbell *bell;
	bool progress = dev->bell_nfree == dev->bells;
	unsigned int len, budget = CCC_RECLAIM_BUDGET;
	u64 now = ccc_now_us();
	bool stale;

	while (budget-- &&
	       (bell = virtqueue_get_buf(dev->doorbellq, &len))) {
		dev->bell_free[dev->bell_nfree++] = bell - dev->bell;
		progress = true;
	}
	if (progress)
		dev->progress_us = now;
	stale = now - dev->progress_us > dev->stale_us;
	if (stale == dev->stale)
		return;
	WRITE_ONCE(dev->stale, stale);
	if (stale)
		ccc_count(&dev->stats.stale);
}

static bool ccc_bell_add(struct ccc_dev *dev, u16 op, u32 slot, u32 generation)
{
	struct virtio_ccc_doorbell *bell;
	struct scatterlist sg;

	if (!dev->bell_nfree)
		return false;
	bell = &dev->bell[dev->bell_free[dev->bell_nfree - 1]];
	bell->op = cpu_to_le16(op);
	bell->slot = cpu_to_le32(slot);
	bell->generation = cpu_to_le32(generation);
	sg_init_one(&sg, bell, sizeof(*bell));
	if (virtqueue_add_outbuf(dev->doorbellq, &sg, 1, bell, GFP_ATOMIC))
		return false;
	dev->bell_nfree--;
	ccc_count(&dev->stats.doorbells);
	return true;
}

/* Whether the message found room; whether the device is to be told, in @kick. */
static bool ccc_bell_push(struct ccc_dev *dev, u16 op, u32 slot, u32 generation,
			  bool *kick)
{
	bool sent;

	ccc_bell_reclaim(dev);
	if (dev->lost && ccc_bell_add(dev, VIRTIO_CCC_OP_RESCAN, 0, 0)) {
		dev->lost = false;
		ccc_count(&dev->stats.rescans);
	}
	sent = !dev->lost && ccc_bell_add(dev, op, slot, generation);
	if (!sent) {
		dev->lost = true;
		ccc_count(&dev->stats.full);
	}
	*kick = virtqueue_kick_prepare(dev->doorbellq);
	if (*kick)
		ccc_count(&dev->stats.kicks);
	return sent;
}

/* False if the message is lost, with the queue full or the device gone. */
bool ccc_bell_send(struct ccc_dev *dev, u16 op, u32 slot, u32 generation)
{
	bool kick = false;
	bool sent = false;

	/* The queue stays until ccc_dev_stop() has waited for us. */
	rcu_read_lock();
	spin_lock_bh(&dev->bell_lock);
	if (dev->up)
		sent = ccc_bell_push(dev, op, slot, generation, &kick);
	spin_unlock_bh(&dev->bell_lock);
	if (kick)
		virtqueue_notify(dev->doorbellq);
	rcu_read_unlock();
	return sent;
}

void ccc_ring(struct ccc_slot *slot, u16 op)
{
	ccc_bell_send(slot->dev, op, slot->index, slot->generation);
}
