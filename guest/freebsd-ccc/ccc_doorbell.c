/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages to the device.  One only says "look at this slot": it may be lost, and
 * the device then looks at all of them.
 */
#include "ccc_driver.h"

/* Messages taken back at one time: more than are added, but no long work. */
#define	RECLAIM_BUDGET	64

/* Once its queues are there. */
int
ccc_doorbell_alloc(struct ccc_device *dev)
{
	struct ccc_doorbell *bell = &dev->doorbell;
	uint32_t i;

	bell->messages = virtqueue_size(bell->vq);
	/* In one piece, so that no message crosses into another page. */
	bell->message = contigmalloc(bell->messages * sizeof(*bell->message),
	    M_CCC, M_WAITOK | M_ZERO, 0, ~(vm_paddr_t)0, PAGE_SIZE, 0);
	bell->free = malloc(bell->messages * sizeof(*bell->free), M_CCC,
	    M_WAITOK);
	if (bell->message == NULL)
		return (ENOMEM);
	for (i = 0; i < bell->messages; i++)
		bell->free[bell->free_count++] = i;
	return (0);
}

void
ccc_doorbell_free(struct ccc_device *dev)
{
	struct ccc_doorbell *bell = &dev->doorbell;

	if (bell->message != NULL)
		contigfree(bell->message,
		    bell->messages * sizeof(*bell->message), M_CCC);
	free(bell->free, M_CCC);
}

void
ccc_doorbell_start(struct ccc_device *dev)
{
	struct ccc_doorbell *bell = &dev->doorbell;
	uint32_t i;

	mtx_lock(&bell->lock);
	/* After a suspension, what was on the queue is not any more. */
	for (i = 0; i < bell->messages; i++)
		bell->free[i] = i;
	bell->free_count = bell->messages;
	bell->lost = false;
	bell->stale = false;
	bell->up = true;
	mtx_unlock(&bell->lock);
}

/* Then nobody uses the queue any more. */
void
ccc_doorbell_stop(struct ccc_device *dev)
{
	mtx_lock(&dev->doorbell.lock);
	dev->doorbell.up = false;
	mtx_unlock(&dev->doorbell.lock);
}

bool
ccc_device_is_stale(const struct ccc_device *dev)
{
	return (atomic_load_bool(&dev->doorbell.stale));
}

static void
reclaim(struct ccc_device *dev)
{
	struct ccc_doorbell *bell = &dev->doorbell;
	bool progress = bell->free_count == bell->messages;
	struct virtio_ccc_doorbell *message;
	uint64_t now = ccc_now_us();
	int budget = RECLAIM_BUDGET;
	bool stale;

	while (budget-- > 0 &&
	    (message = virtqueue_dequeue(bell->vq, NULL)) != NULL) {
		bell->free[bell->free_count++] = message - bell->message;
		progress = true;
	}
	if (progress)
		bell->progress_us = now;
	stale = now - bell->progress_us > dev->config.stale_us;
	if (stale && !bell->stale)
		bell->stats.stale++;
	bell->stale = stale;
}

static bool
add(struct ccc_device *dev, uint16_t op, uint32_t slot, uint32_t generation)
{
	struct ccc_doorbell *bell = &dev->doorbell;
	struct virtio_ccc_doorbell *message;
	struct sglist_seg segment;
	struct sglist list;

	if (bell->free_count == 0)
		return (false);
	message = &bell->message[bell->free[bell->free_count - 1]];
	message->op = htole16(op);
	message->slot = htole32(slot);
	message->generation = htole32(generation);
	sglist_init(&list, 1, &segment);
	if (sglist_append(&list, message, sizeof(*message)) != 0 ||
	    virtqueue_enqueue(bell->vq, message, &list, 1, 0) != 0)
		return (false);
	bell->free_count--;
	bell->stats.sent++;
	return (true);
}

/* Whether the message found room. */
static bool
push(struct ccc_device *dev, uint16_t op, uint32_t slot, uint32_t generation)
{
	struct ccc_doorbell *bell = &dev->doorbell;
	bool sent;

	reclaim(dev);
	if (bell->lost && add(dev, VIRTIO_CCC_OP_RESCAN, 0, 0)) {
		bell->lost = false;
		bell->stats.rescans++;
	}
	sent = !bell->lost && add(dev, op, slot, generation);
	if (!sent) {
		bell->lost = true;
		bell->stats.full++;
	}
	virtqueue_notify(bell->vq);
	return (sent);
}

/* False if the message is lost, with the queue full or the device gone. */
bool
ccc_doorbell_push(struct ccc_device *dev, uint16_t op, uint32_t slot,
    uint32_t generation)
{
	bool sent = false;

	mtx_lock(&dev->doorbell.lock);
	if (dev->doorbell.up)
		sent = push(dev, op, slot, generation);
	mtx_unlock(&dev->doorbell.lock);
	return (sent);
}

void
ccc_doorbell_send(struct ccc_device *dev, uint16_t op, uint32_t slot,
    uint32_t generation)
{
	(void)ccc_doorbell_push(dev, op, slot, generation);
}
