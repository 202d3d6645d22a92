// SPDX-License-Identifier: GPL-2.0
/*
 * Messages to the device.  One only says "look at this slot": it may be lost, and
 * the device then looks at all of them.
 */
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "device.h"

/* Messages taken back at one time: more than are added, but no long work. */
#define RECLAIM_BUDGET	64

int ccc_doorbell_init(struct ccc_device *dev)
{
	struct ccc_doorbell *bell = &dev->doorbell;
	u32 i;

	bell->messages = min_t(u32, virtqueue_get_vring_size(dev->vq.doorbell),
			       U16_MAX);
	bell->message = kcalloc(bell->messages, sizeof(*bell->message),
				GFP_KERNEL);
	bell->free = kcalloc(bell->messages, sizeof(*bell->free), GFP_KERNEL);
	bell->place = kcalloc(bell->messages, sizeof(*bell->place), GFP_KERNEL);
	if (!bell->message || !bell->free || !bell->place)
		return -ENOMEM;
	for (i = 0; i < bell->messages; i++) {
		bell->free[bell->free_count++] = i;
		sg_init_one(&bell->place[i], &bell->message[i],
			    sizeof(*bell->message));
	}
	return 0;
}

void ccc_doorbell_start(struct ccc_device *dev)
{
	WRITE_ONCE(dev->doorbell.up, true);
}

/* After a grace period nobody uses the queue any more. */
void ccc_doorbell_stop(struct ccc_device *dev)
{
	spin_lock_bh(&dev->doorbell.lock);
	WRITE_ONCE(dev->doorbell.up, false);
	spin_unlock_bh(&dev->doorbell.lock);
	synchronize_rcu();
}

static void reclaim(struct ccc_device *dev)
{
	struct ccc_doorbell *bell = &dev->doorbell;
	bool progress = bell->free_count == bell->messages;
	unsigned int len, budget = RECLAIM_BUDGET;
	struct virtio_ccc_doorbell *message;
	u64 now = tcp_clock_us();
	bool stale;

	while (budget-- &&
	       (message = virtqueue_get_buf(dev->vq.doorbell, &len))) {
		bell->free[bell->free_count++] = message - bell->message;
		progress = true;
	}
	if (progress)
		bell->progress_us = now;
	stale = now - bell->progress_us > dev->config.stale_us;
	if (stale == bell->stale)
		return;
	WRITE_ONCE(bell->stale, stale);
	if (stale)
		u64_stats_inc(&bell->stats.stale);
}

static bool add(struct ccc_device *dev, u16 op, u32 slot, u32 generation)
{
	struct ccc_doorbell *bell = &dev->doorbell;
	struct virtio_ccc_doorbell *message;
	u16 number;

	if (!bell->free_count)
		return false;
	number = bell->free[bell->free_count - 1];
	message = &bell->message[number];
	message->op = cpu_to_le16(op);
	message->slot = cpu_to_le32(slot);
	message->generation = cpu_to_le32(generation);
	if (virtqueue_add_outbuf(dev->vq.doorbell, &bell->place[number], 1,
				 message, GFP_ATOMIC))
		return false;
	bell->free_count--;
	u64_stats_inc(&bell->stats.sent);
	return true;
}

/* Whether the message found room; whether the device is to be told, in @kick. */
static bool push(struct ccc_device *dev, u16 op, u32 slot, u32 generation,
		 bool *kick)
{
	struct ccc_doorbell *bell = &dev->doorbell;
	bool sent;

	reclaim(dev);
	if (bell->lost && add(dev, VIRTIO_CCC_OP_RESCAN, 0, 0)) {
		bell->lost = false;
		u64_stats_inc(&bell->stats.rescans);
	}
	sent = !bell->lost && add(dev, op, slot, generation);
	if (!sent) {
		bell->lost = true;
		u64_stats_inc(&bell->stats.full);
	}
	*kick = virtqueue_kick_prepare(dev->vq.doorbell);
	if (*kick)
		u64_stats_inc(&bell->stats.kicks);
	return sent;
}

/* False if the message is lost, with the queue full or the device gone. */
bool ccc_doorbell_send(struct ccc_device *dev, u16 op, u32 slot, u32 generation)
{
	bool kick = false;
	bool sent = false;

	/* The queue stays until ccc_doorbell_stop() has waited for us. */
	rcu_read_lock();
	spin_lock_bh(&dev->doorbell.lock);
	if (dev->doorbell.up)
		sent = push(dev, op, slot, generation, &kick);
	spin_unlock_bh(&dev->doorbell.lock);
	if (kick)
		virtqueue_notify(dev->vq.doorbell);
	rcu_read_unlock();
	return sent;
}
