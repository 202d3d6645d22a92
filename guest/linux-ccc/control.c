// SPDX-License-Identifier: GPL-2.0
/*
 * Lending of tables, and what the device has to say about them.
 *
 * The driver lends the device tables in its own memory, in chunks.  A chunk
 * counts only once the device says that it has adopted it.
 */
#include <linux/device.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/virtio_config.h>

#include "device.h"

#define CCC_POLL_MIN_MS		10
#define CCC_POLL_MAX_MS		1000
/* How long a chunk is kept back that the device did not keep. */
#define CCC_WAIT_MIN_MS		100
#define CCC_WAIT_MAX_MS		30000
/* Events handled at one time, and how long the next ones wait then. */
#define CCC_EVENT_BUDGET	(8 * CCC_MAX_EVENTS)
#define CCC_EVENT_WAIT_MS	10

struct workqueue_struct *ccc_wq;

static int ccc_chunk_lend(struct ccc_dev *dev, struct ccc_chunk *chunk)
{
	struct scatterlist lend, report, grant, *sgs[] = {
		&lend, &report, &grant
	};
	int err;

	/*
	 * A flow of an earlier turn may be writing its last report.  It looks
	 * at the turn and writes in one section; see report.c.
	 */
	ccc_chunk_begin_turn(dev, chunk);
	synchronize_rcu();
	memset(chunk->report, 0, chunk->report_size);
	memset(chunk->head, 0, chunk->grant_size);
	sg_init_one(&lend, chunk->lend, sizeof(*chunk->lend));
	sg_init_one(&report, chunk->report, chunk->report_size);
	sg_init_one(&grant, chunk->head, chunk->grant_size);
	err = virtqueue_add_sgs(dev->tableq, sgs, 2, 1, chunk, GFP_KERNEL);
	if (err)
		return err;
	chunk->lent = true;
	chunk->refused = false;
	chunk->asked = false;
	dev->poll_ms = CCC_POLL_MIN_MS;
	virtqueue_kick(dev->tableq);
	return 0;
}

/*
 * A chunk that the device once gave back is lent again first, whether or not
 * flows that have no ACKs at present still hold slots of its last turn.
 */
struct ccc_chunk *ccc_chunk_spare(struct ccc_dev *dev)
{
	struct ccc_chunk *chunk;
	u32 i, first = 0;

	for (i = 0; i < dev->chunks; i++) {
		chunk = dev->chunk[i];
		if (!chunk->lent)
			return chunk;
		first += chunk->slots;
	}
	if (dev->chunks == CCC_MAX_CHUNKS || first >= dev->max_slots)
		return NULL;
	chunk = ccc_chunk_alloc(dev, first, dev->chunks ? 0 : dev->lines);
	if (!chunk)
		return NULL;
	spin_lock_bh(&dev->slot_lock);
	dev->chunk[dev->chunks] = chunk;
	/* The chunk before its number, for debugfs. */
	smp_store_release(&dev->chunks, dev->chunks + 1);
	spin_unlock_bh(&dev->slot_lock);
	return chunk;
}

/* The next chunk is lent later, and later each time, until one is adopted. */
static void ccc_lend_later(struct ccc_dev *dev)
{
	dev->wait_ms = clamp(dev->wait_ms * 2, (unsigned int)CCC_WAIT_MIN_MS,
			     (unsigned int)CCC_WAIT_MAX_MS);
	dev->wait_since = jiffies;
}

/* How long lending has to wait still. */
static unsigned long ccc_wait_left(const struct ccc_dev *dev)
{
	unsigned long end = dev->wait_since + msecs_to_jiffies(dev->wait_ms);

	return dev->wait_ms && time_before(jiffies, end) ? end - jiffies : 0;
}

/* Whether the device should have more slots, or the lines, and may take them. */
static bool ccc_should_lend(const struct ccc_dev *dev)
{
	u32 i, slots = 0;

	if (!ccc_is_low(dev) && dev->chunk[0]->lent)
		return false;

	for (i = 0; i < dev->chunks; i++) {
		if (!dev->chunk[i]->lent)
			return true;
		slots += dev->chunk[i]->slots;
	}
	return dev->chunks < CCC_MAX_CHUNKS && slots < dev->max_slots;
}

static void ccc_lend_if_due(struct ccc_dev *dev)
{
	struct ccc_chunk *chunk;

	if (dev->poll_ms || ccc_wait_left(dev) || !ccc_should_lend(dev))
		return;
	chunk = ccc_chunk_spare(dev);
	if (!chunk || ccc_chunk_lend(dev, chunk))
		ccc_lend_later(dev);
}

static void ccc_chunk_refused(struct ccc_dev *dev, struct ccc_chunk *chunk)
{
	if (chunk->refused)
		return;
	/* Once for all attempts until one is a success. */
	if (!dev->wait_ms)
		dev_err(&dev->vdev->dev,
			"the device refuses %u slots from %u on; flows without a slot go on alone, the slots will be offered again\n",
			chunk->slots, le32_to_cpu(chunk->lend->first_slot));
	chunk->refused = true;
	ccc_lend_later(dev);
}

/* Whether the device has decided about every chunk. */
static bool ccc_check_adoption(struct ccc_dev *dev)
{
	bool decided = true;
	u32 i;

	for (i = 0; i < dev->chunks; i++) {
		struct ccc_chunk *chunk = dev->chunk[i];

		/* One on its way back still says that it was adopted. */
		if (!chunk->lent || chunk->asked || chunk->live)
			continue;
		switch (le32_to_cpu(READ_ONCE(chunk->head->status))) {
		case VIRTIO_CCC_EXTENT_ACCEPTED:
			virt_rmb();	/* status before lines and grants */
			dev->wait_ms = 0;
			ccc_chunk_adopted(dev, chunk);
			break;
		case VIRTIO_CCC_EXTENT_PENDING:
			decided = false;
			break;
		default:
			ccc_chunk_refused(dev, chunk);
		}
	}
	return decided;
}

static void ccc_release_chunk(struct ccc_dev *dev, u32 first)
{
	u32 i;

	for (i = 0; i < dev->chunks; i++) {
		struct ccc_chunk *chunk = dev->chunk[i];

		if (!chunk->lent ||
		    le32_to_cpu(chunk->lend->first_slot) != first)
			continue;
		chunk->asked = true;
		chunk->answered = false;
		ccc_chunk_withdraw(dev, chunk);
		ccc_count(&dev->stats.releases);
		return;
	}
	ccc_count(&dev->stats.bad_events);
}

static void ccc_event_handle(struct ccc_dev *dev,
			     const struct virtio_ccc_event *event)
{
	switch (le16_to_cpu(READ_ONCE(event->type))) {
	case VIRTIO_CCC_EV_RESYNC:
		/* Slots are always up to date: the device need only look. */
		ccc_count(&dev->stats.resyncs);
		ccc_bell_send(dev, VIRTIO_CCC_OP_RESCAN, 0, 0);
		break;
	case VIRTIO_CCC_EV_POLICY:
		/* Lines carry all that a flow obeys, at its next ACK. */
		ccc_count(&dev->stats.policies);
		break;
	case VIRTIO_CCC_EV_RELEASE:
		ccc_release_chunk(dev, le32_to_cpu(READ_ONCE(event->value)));
		break;
	default:
		ccc_count(&dev->stats.bad_events);
	}
}

void ccc_event_offer(struct ccc_dev *dev, struct virtio_ccc_event *event)
{
	struct scatterlist sg;

	memset(event, 0, sizeof(*event));
	sg_init_one(&sg, event, sizeof(*event));
	/* There is room: the queue had this buffer, or is not filled yet. */
	virtqueue_add_inbuf(dev->eventq, &sg, 1, event, GFP_KERNEL);
}

/* Whether there may be more: a device can send them without end. */
static bool ccc_events_handle(struct ccc_dev *dev)
{
	unsigned int len, budget = CCC_EVENT_BUDGET;
	struct virtio_ccc_event *event;
	bool any = false;

	do {
		virtqueue_disable_cb(dev->eventq);
		while (budget &&
		       (event = virtqueue_get_buf(dev->eventq, &len))) {
			budget--;
			if (len >= sizeof(*event))
				ccc_event_handle(dev, event);
			else
				ccc_count(&dev->stats.bad_events);
			ccc_event_offer(dev, event);
			any = true;
		}
	} while (!virtqueue_enable_cb(dev->eventq) && budget);
	if (any)
		virtqueue_kick(dev->eventq);
	return !budget;
}

/* Chains come back when they are released or refused. */
static void ccc_tables_handle(struct ccc_dev *dev)
{
	struct ccc_chunk *chunk;
	unsigned int len;

	do {
		virtqueue_disable_cb(dev->tableq);
		while ((chunk = virtqueue_get_buf(dev->tableq, &len))) {
			ccc_chunk_withdraw(dev, chunk);
			chunk->lent = false;
			if (!chunk->refused)
				ccc_lend_later(dev);
		}
	} while (!virtqueue_enable_cb(dev->tableq));
}

/* Whether the device has been told of every chunk that it wants back. */
static bool ccc_answer_releases(struct ccc_dev *dev)
{
	bool answered = true;
	u32 i;

	for (i = 0; i < dev->chunks; i++) {
		struct ccc_chunk *chunk = dev->chunk[i];

		if (!chunk->lent || !chunk->asked || chunk->answered)
			continue;
		chunk->answered = ccc_bell_send(dev, VIRTIO_CCC_OP_RELEASE,
						le32_to_cpu(chunk->lend->first_slot),
						0);
		answered &= chunk->answered;
	}
	return answered;
}

/* Nothing is left that only another look will show or that found no room. */
static bool ccc_settled(struct ccc_dev *dev)
{
	bool answered = ccc_answer_releases(dev);

	return ccc_check_adoption(dev) && answered;
}

/* If flows look for slots in vain, and none are on their way. */
static void ccc_find_room(struct ccc_dev *dev)
{
	if (READ_ONCE(dev->starved) && !dev->poll_ms)
		ccc_idle_give_back(dev, max(dev->chunk_slots / 4, 1u));
}

/* When to look again though nothing has happened. */
static unsigned long ccc_next_look(struct ccc_dev *dev)
{
	unsigned long delay = MAX_SCHEDULE_TIMEOUT;

	if (READ_ONCE(dev->starved))
		delay = msecs_to_jiffies(CCC_POLL_MAX_MS);
	if (dev->wait_ms && ccc_should_lend(dev))
		delay = min(delay, max(ccc_wait_left(dev), 1ul));
	return delay;
}

/* Look again after @delay, in jiffies, or when something happens. */
static void ccc_look_after(struct ccc_dev *dev, unsigned long delay)
{
	if (delay != MAX_SCHEDULE_TIMEOUT)
		queue_delayed_work(ccc_wq, &dev->work, delay);
}

void ccc_work(struct work_struct *work)
{
	struct ccc_dev *dev = container_of(work, struct ccc_dev, work.work);

	bool more;

	if (!READ_ONCE(dev->up))
		return;
	more = ccc_events_handle(dev);
	if (ccc_settled(dev))
		dev->poll_ms = 0;
	ccc_tables_handle(dev);
	ccc_lend_if_due(dev);
	ccc_find_room(dev);
	if (more) {
		ccc_look_after(dev, msecs_to_jiffies(CCC_EVENT_WAIT_MS));
		return;
	}
	if (ccc_settled(dev)) {
		dev->poll_ms = 0;
		ccc_look_after(dev, ccc_next_look(dev));
		return;
	}
	/* Adoption raises no interrupt: it is rare, and seen by looking. */
	dev->poll_ms = dev->poll_ms ?: CCC_POLL_MIN_MS;
	ccc_look_after(dev, msecs_to_jiffies(dev->poll_ms));
	dev->poll_ms = min_t(unsigned int, dev->poll_ms * 2, CCC_POLL_MAX_MS);
}

void ccc_queue_callback(struct virtqueue *vq)
{
	struct ccc_dev *dev = vq->vdev->priv;

	if (READ_ONCE(dev->up))
		mod_delayed_work(ccc_wq, &dev->work, 0);
}
