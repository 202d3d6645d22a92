// SPDX-License-Identifier: GPL-2.0
/*
 * The virtio congestion control coupling device: tables, doorbell, events.
 *
 * The driver lends the device tables in its own memory, in chunks.  A chunk
 * counts only once the device says that it has adopted it.  Flows write their
 * slot and ring the doorbell; grants are read in place, without waiting for
 * anything.  Nothing the device writes is trusted beyond its range.
 */
#include <linux/bitmap.h>
#include <linux/device.h>
#include <linux/module.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/virtio_config.h>

#include "ccc.h"

static unsigned int slots = 256;
module_param(slots, uint, 0444);
MODULE_PARM_DESC(slots, "slots of one chunk of the tables (default 256)");

#define CCC_MAX_CHUNK_SLOTS	4096
#define CCC_POLL_MIN_MS		10
#define CCC_POLL_MAX_MS		1000
/* Attempts to read a line that the device is writing. */
#define CCC_READ_TRIES		4

/* Protects the publication of ccc_current. */
static DEFINE_MUTEX(ccc_current_lock);
static struct ccc_dev __rcu *ccc_current;

static struct workqueue_struct *ccc_wq;

u32 ccc_room;

static u64 ccc_now_us(void)
{
	return tcp_clock_us();
}

struct ccc_dev *ccc_dev_rcu(void)
{
	return rcu_dereference(ccc_current);
}

/* ---- Memory ------------------------------------------------------------ */

static struct virtio_ccc_line *ccc_lines(const struct ccc_dev *dev)
{
	return (struct virtio_ccc_line *)(dev->chunk[0]->head + 1);
}

static void ccc_chunk_free(struct ccc_chunk *chunk)
{
	if (!chunk)
		return;
	if (chunk->report)
		free_pages_exact(chunk->report, chunk->report_size);
	if (chunk->head)
		free_pages_exact(chunk->head, chunk->grant_size);
	bitmap_free(chunk->map);
	kfree(chunk->lend);
	kfree(chunk);
}

static void ccc_chunk_init_slots(struct ccc_dev *dev, struct ccc_chunk *chunk,
				 u32 first, u32 lines)
{
	struct virtio_ccc_line *line = (void *)(chunk->head + 1);
	struct virtio_ccc_grant *grant = (void *)(line + lines);
	u32 i;

	for (i = 0; i < chunk->slots; i++) {
		struct ccc_slot *slot = &chunk->slot[i];

		slot->dev = dev;
		slot->chunk = chunk;
		slot->report = &chunk->report[i];
		slot->grant = &grant[i];
		slot->index = first + i;
		slot->offset = ccc_slot_offset(first + i);
	}
}

static struct ccc_chunk *ccc_chunk_alloc(struct ccc_dev *dev, u32 first,
					 u32 lines)
{
	u32 n = min(dev->chunk_slots, dev->max_slots - first);
	struct ccc_chunk *chunk;

	chunk = kzalloc(struct_size(chunk, slot, n), GFP_KERNEL);
	if (!chunk)
		return NULL;
	chunk->slots = n;
	chunk->report_size = n * sizeof(*chunk->report);
	chunk->grant_size = sizeof(*chunk->head) +
			    lines * sizeof(struct virtio_ccc_line) +
			    n * sizeof(struct virtio_ccc_grant);
	chunk->lend = kzalloc(sizeof(*chunk->lend), GFP_KERNEL);
	chunk->map = bitmap_zalloc(n, GFP_KERNEL);
	chunk->report = alloc_pages_exact(chunk->report_size,
					  GFP_KERNEL | __GFP_ZERO);
	chunk->head = alloc_pages_exact(chunk->grant_size,
					GFP_KERNEL | __GFP_ZERO);
	if (!chunk->lend || !chunk->map || !chunk->report || !chunk->head) {
		ccc_chunk_free(chunk);
		return NULL;
	}
	chunk->lend->first_slot = cpu_to_le32(first);
	chunk->lend->slots = cpu_to_le32(n);
	chunk->lend->lines = cpu_to_le32(lines);
	ccc_chunk_init_slots(dev, chunk, first, lines);
	return chunk;
}

static void ccc_dev_free_rcu(struct rcu_head *rcu)
{
	struct ccc_dev *dev = container_of(rcu, struct ccc_dev, rcu);
	u32 i;

	for (i = 0; i < dev->chunks; i++)
		ccc_chunk_free(dev->chunk[i]);
	kfree(dev->event);
	kfree(dev->bell);
	kfree(dev->bell_free);
	kfree(dev);
}

/* Readers of debugfs and inet_diag may still look at a slot. */
static void ccc_dev_release(struct kref *ref)
{
	struct ccc_dev *dev = container_of(ref, struct ccc_dev, ref);

	call_rcu(&dev->rcu, ccc_dev_free_rcu);
}

/* ---- Doorbell ---------------------------------------------------------- */

static void ccc_bell_reclaim(struct ccc_dev *dev)
{
	struct virtio_ccc_doorbell *bell;
	bool progress = dev->bell_nfree == dev->bells;
	unsigned int len;
	u64 now = ccc_now_us();
	bool stale;

	while ((bell = virtqueue_get_buf(dev->doorbellq, &len))) {
		dev->bell_free[dev->bell_nfree++] = bell - dev->bell;
		progress = true;
	}
	if (progress)
		dev->progress_us = now;
	stale = dev->stale_us && now - dev->progress_us > dev->stale_us;
	if (stale == dev->stale)
		return;
	WRITE_ONCE(dev->stale, stale);
	dev->stats.stale += stale;
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
	dev->stats.doorbells++;
	return true;
}

static bool ccc_bell_push(struct ccc_dev *dev, u16 op, u32 slot, u32 generation)
{
	ccc_bell_reclaim(dev);
	if (dev->lost && ccc_bell_add(dev, VIRTIO_CCC_OP_RESCAN, 0, 0)) {
		dev->lost = false;
		dev->stats.rescans++;
	}
	if (dev->lost || !ccc_bell_add(dev, op, slot, generation)) {
		dev->lost = true;
		dev->stats.full++;
	}
	if (!virtqueue_kick_prepare(dev->doorbellq))
		return false;
	dev->stats.kicks++;
	return true;
}

static void ccc_bell_send(struct ccc_dev *dev, u16 op, u32 slot, u32 generation)
{
	bool kick = false;

	/* The queue stays until ccc_dev_stop() has waited for us. */
	rcu_read_lock();
	spin_lock_bh(&dev->bell_lock);
	if (dev->up)
		kick = ccc_bell_push(dev, op, slot, generation);
	spin_unlock_bh(&dev->bell_lock);
	if (kick)
		virtqueue_notify(dev->doorbellq);
	rcu_read_unlock();
}

void ccc_ring(struct ccc_slot *slot, u16 op)
{
	ccc_bell_send(slot->dev, op, slot->index, slot->generation);
}

/* ---- Slots ------------------------------------------------------------- */

static void ccc_announce_room(void)
{
	WRITE_ONCE(ccc_room, READ_ONCE(ccc_room) + 1);
}

static struct ccc_slot *ccc_chunk_take(struct ccc_chunk *chunk)
{
	unsigned long n;

	if (!chunk->live || chunk->used == chunk->slots)
		return NULL;
	n = find_first_zero_bit(chunk->map, chunk->slots);
	__set_bit(n, chunk->map);
	chunk->used++;
	return &chunk->slot[n];
}

/* The lowest free slot: neighbours round evenly, and the device looks less. */
static struct ccc_slot *ccc_dev_take(struct ccc_dev *dev)
{
	struct ccc_slot *slot = NULL;
	bool lend;
	u32 i;

	spin_lock_bh(&dev->slot_lock);
	for (i = 0; i < dev->chunks && !slot; i++)
		slot = ccc_chunk_take(dev->chunk[i]);
	if (slot) {
		kref_get(&dev->ref);
		WRITE_ONCE(dev->free, dev->free - 1);
	} else {
		WRITE_ONCE(dev->starved, true);
	}
	lend = dev->free < dev->chunk_slots / 4;
	spin_unlock_bh(&dev->slot_lock);
	if (lend && !READ_ONCE(dev->refused) && READ_ONCE(dev->up))
		queue_delayed_work(ccc_wq, &dev->work, 0);
	return slot;
}

/* A slot for a flow, with a new generation; NULL if there is none. */
struct ccc_slot *ccc_slot_take(void)
{
	struct ccc_slot *slot = NULL;
	struct ccc_dev *dev;

	rcu_read_lock();
	dev = rcu_dereference(ccc_current);
	if (dev && (READ_ONCE(dev->free) || !READ_ONCE(dev->starved)))
		slot = ccc_dev_take(dev);
	rcu_read_unlock();
	if (!slot)
		return NULL;
	slot->generation = ccc_next_generation(slot->generation);
	return slot;
}

void ccc_slot_drop(struct ccc_slot *slot)
{
	struct ccc_chunk *chunk = slot->chunk;
	struct ccc_dev *dev = slot->dev;

	spin_lock_bh(&dev->slot_lock);
	__clear_bit(slot - chunk->slot, chunk->map);
	chunk->used--;
	if (chunk->live) {
		WRITE_ONCE(dev->free, dev->free + 1);
		if (dev->starved) {
			WRITE_ONCE(dev->starved, false);
			ccc_announce_room();
		}
	}
	spin_unlock_bh(&dev->slot_lock);
	kref_put(&dev->ref, ccc_dev_release);
}

/* ---- Grants ------------------------------------------------------------ */

static bool ccc_line_read(const struct virtio_ccc_line *line,
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
		view->phase = le32_to_cpu(READ_ONCE(line->phase));
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
	const struct virtio_ccc_grant *grant = slot->grant;

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
	view.cap = dev->slot_cap ? le64_to_cpu(READ_ONCE(slot->grant->cap)) :
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

/* ---- Lending, and what the device has to say ---------------------------- */

static int ccc_chunk_lend(struct ccc_dev *dev, struct ccc_chunk *chunk)
{
	struct scatterlist lend, report, grant, *sgs[] = {
		&lend, &report, &grant
	};
	int err;

	memset(chunk->report, 0, chunk->report_size);
	memset(chunk->head, 0, chunk->grant_size);
	sg_init_one(&lend, chunk->lend, sizeof(*chunk->lend));
	sg_init_one(&report, chunk->report, chunk->report_size);
	sg_init_one(&grant, chunk->head, chunk->grant_size);
	err = virtqueue_add_sgs(dev->tableq, sgs, 2, 1, chunk, GFP_KERNEL);
	if (err)
		return err;
	chunk->lent = true;
	chunk->asked = false;
	dev->poll_ms = CCC_POLL_MIN_MS;
	virtqueue_kick(dev->tableq);
	return 0;
}

/* A chunk that the device once gave back is lent again first. */
static struct ccc_chunk *ccc_chunk_spare(struct ccc_dev *dev)
{
	struct ccc_chunk *chunk;
	u32 i, first = 0;

	for (i = 0; i < dev->chunks; i++) {
		chunk = dev->chunk[i];
		if (!chunk->lent && !chunk->used)
			return chunk;
		first += chunk->slots;
	}
	if (dev->chunks == CCC_MAX_CHUNKS || first >= dev->max_slots)
		return NULL;
	chunk = ccc_chunk_alloc(dev, first, dev->chunks ? 0 : dev->lines);
	if (!chunk)
		return NULL;
	spin_lock_bh(&dev->slot_lock);
	dev->chunk[dev->chunks++] = chunk;
	spin_unlock_bh(&dev->slot_lock);
	return chunk;
}

static void ccc_lend_if_low(struct ccc_dev *dev)
{
	struct ccc_chunk *chunk;
	bool low;

	spin_lock_bh(&dev->slot_lock);
	low = dev->free < dev->chunk_slots / 4 || !dev->chunks;
	spin_unlock_bh(&dev->slot_lock);
	if (!low || dev->refused || dev->poll_ms)
		return;
	chunk = ccc_chunk_spare(dev);
	if (!chunk || ccc_chunk_lend(dev, chunk))
		WRITE_ONCE(dev->refused, true);
}

static void ccc_chunk_adopted(struct ccc_dev *dev, struct ccc_chunk *chunk)
{
	spin_lock_bh(&dev->slot_lock);
	WRITE_ONCE(chunk->live, true);
	WRITE_ONCE(dev->free, dev->free + chunk->slots - chunk->used);
	WRITE_ONCE(dev->starved, false);
	ccc_announce_room();
	spin_unlock_bh(&dev->slot_lock);
}

static void ccc_chunk_withdraw(struct ccc_dev *dev, struct ccc_chunk *chunk)
{
	spin_lock_bh(&dev->slot_lock);
	if (chunk->live) {
		WRITE_ONCE(chunk->live, false);
		dev->free -= chunk->slots - chunk->used;
		ccc_announce_room();
	}
	spin_unlock_bh(&dev->slot_lock);
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
		case VIRTIO_CCC_LENT_YES:
			virt_rmb();	/* status before lines and grants */
			ccc_chunk_adopted(dev, chunk);
			break;
		case VIRTIO_CCC_LENT_NO:
			decided = false;
			break;
		default:
			if (!dev->refused)
				dev_err(&dev->vdev->dev,
					"the device refuses %u slots from %u on\n",
					chunk->slots,
					le32_to_cpu(chunk->lend->first_slot));
			WRITE_ONCE(dev->refused, true);
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
		ccc_chunk_withdraw(dev, chunk);
		ccc_bell_send(dev, VIRTIO_CCC_OP_RELEASE, first, 0);
		dev->stats.releases++;
		return;
	}
	dev->stats.bad_events++;
}

static void ccc_event_handle(struct ccc_dev *dev,
			     const struct virtio_ccc_event *event)
{
	switch (le16_to_cpu(READ_ONCE(event->type))) {
	case VIRTIO_CCC_EV_RESYNC:
		/* Slots are always up to date: the device need only look. */
		dev->stats.resyncs++;
		ccc_bell_send(dev, VIRTIO_CCC_OP_RESCAN, 0, 0);
		break;
	case VIRTIO_CCC_EV_POLICY:
		/* Lines carry all that a flow obeys, at its next ACK. */
		dev->stats.policies++;
		break;
	case VIRTIO_CCC_EV_RELEASE:
		ccc_release_chunk(dev, le32_to_cpu(READ_ONCE(event->value)));
		break;
	default:
		dev->stats.bad_events++;
	}
}

static void ccc_event_offer(struct ccc_dev *dev, struct virtio_ccc_event *event)
{
	struct scatterlist sg;

	memset(event, 0, sizeof(*event));
	sg_init_one(&sg, event, sizeof(*event));
	/* There is room: the queue had this buffer, or is not filled yet. */
	virtqueue_add_inbuf(dev->eventq, &sg, 1, event, GFP_KERNEL);
}

static void ccc_events_handle(struct ccc_dev *dev)
{
	struct virtio_ccc_event *event;
	unsigned int len;
	bool any = false;

	do {
		virtqueue_disable_cb(dev->eventq);
		while ((event = virtqueue_get_buf(dev->eventq, &len))) {
			if (len >= sizeof(*event))
				ccc_event_handle(dev, event);
			else
				dev->stats.bad_events++;
			ccc_event_offer(dev, event);
			any = true;
		}
	} while (!virtqueue_enable_cb(dev->eventq));
	if (any)
		virtqueue_kick(dev->eventq);
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
		}
	} while (!virtqueue_enable_cb(dev->tableq));
}

static void ccc_work(struct work_struct *work)
{
	struct ccc_dev *dev = container_of(work, struct ccc_dev, work.work);

	if (!READ_ONCE(dev->up))
		return;
	ccc_events_handle(dev);
	if (ccc_check_adoption(dev))
		dev->poll_ms = 0;
	ccc_tables_handle(dev);
	ccc_lend_if_low(dev);
	if (dev->poll_ms && ccc_check_adoption(dev))
		dev->poll_ms = 0;
	if (!dev->poll_ms)
		return;
	/* Adoption raises no interrupt: it is rare, and seen by looking. */
	queue_delayed_work(ccc_wq, &dev->work,
			   msecs_to_jiffies(dev->poll_ms));
	dev->poll_ms = min_t(unsigned int, dev->poll_ms * 2, CCC_POLL_MAX_MS);
}

static void ccc_queue_callback(struct virtqueue *vq)
{
	struct ccc_dev *dev = vq->vdev->priv;

	if (READ_ONCE(dev->up))
		mod_delayed_work(ccc_wq, &dev->work, 0);
}

/* ---- Device life ------------------------------------------------------- */

static int ccc_find_vqs(struct ccc_dev *dev)
{
	struct virtqueue *vqs[VIRTIO_CCC_VQ_COUNT];
	int err;
#ifdef CCC_HAVE_VIRTQUEUE_INFO
	struct virtqueue_info info[VIRTIO_CCC_VQ_COUNT] = {
		[VIRTIO_CCC_VQ_TABLE] = { "table", ccc_queue_callback },
		[VIRTIO_CCC_VQ_DOORBELL] = { "doorbell" },
		[VIRTIO_CCC_VQ_EVENT] = { "event", ccc_queue_callback },
	};

	err = virtio_find_vqs(dev->vdev, VIRTIO_CCC_VQ_COUNT, vqs, info, NULL);
#else
	vq_callback_t *callbacks[VIRTIO_CCC_VQ_COUNT] = {
		[VIRTIO_CCC_VQ_TABLE] = ccc_queue_callback,
		[VIRTIO_CCC_VQ_EVENT] = ccc_queue_callback,
	};
	static const char * const names[VIRTIO_CCC_VQ_COUNT] = {
		"table", "doorbell", "event"
	};

	err = virtio_find_vqs(dev->vdev, VIRTIO_CCC_VQ_COUNT, vqs, callbacks,
			      names, NULL);
#endif
	if (err)
		return err;
	dev->tableq = vqs[VIRTIO_CCC_VQ_TABLE];
	dev->doorbellq = vqs[VIRTIO_CCC_VQ_DOORBELL];
	dev->eventq = vqs[VIRTIO_CCC_VQ_EVENT];
	virtqueue_disable_cb(dev->doorbellq);
	return 0;
}

static int ccc_read_config(struct ccc_dev *dev)
{
	struct virtio_device *vdev = dev->vdev;
	u32 revision;

	virtio_cread_le(vdev, struct virtio_ccc_config, revision, &revision);
	if (revision != VIRTIO_CCC_REVISION) {
		dev_err(&vdev->dev,
			"device has revision %u, this driver knows only %u\n",
			revision, VIRTIO_CCC_REVISION);
		return -ENODEV;
	}
	virtio_cread_le(vdev, struct virtio_ccc_config, max_slots,
			&dev->max_slots);
	virtio_cread_le(vdev, struct virtio_ccc_config, max_lines, &dev->lines);
	virtio_cread_le(vdev, struct virtio_ccc_config, stale_us,
			&dev->stale_us);
	if (!dev->max_slots || !dev->lines) {
		dev_err(&vdev->dev, "device takes %u slots and %u lines\n",
			dev->max_slots, dev->lines);
		return -ENODEV;
	}
	dev->lines = min_t(u32, dev->lines, CCC_LINES);
	dev->max_slots = min_t(u32, dev->max_slots,
			       CCC_MAX_CHUNKS * CCC_MAX_CHUNK_SLOTS);
	dev->chunk_slots = clamp_t(u32, slots, 1, CCC_MAX_CHUNK_SLOTS);
	dev->chunk_slots = min(dev->chunk_slots, dev->max_slots);
	dev->rate_share = virtio_has_feature(vdev, VIRTIO_CCC_F_RATE_SHARE);
	dev->slot_cap = virtio_has_feature(vdev, VIRTIO_CCC_F_SLOT_CAP);
	return 0;
}

static int ccc_alloc_messages(struct ccc_dev *dev)
{
	u32 i;

	dev->bells = min_t(u32, virtqueue_get_vring_size(dev->doorbellq),
			   U16_MAX);
	dev->bell = kcalloc(dev->bells, sizeof(*dev->bell), GFP_KERNEL);
	dev->bell_free = kcalloc(dev->bells, sizeof(*dev->bell_free),
				 GFP_KERNEL);
	dev->event = kcalloc(CCC_MAX_EVENTS, sizeof(*dev->event), GFP_KERNEL);
	if (!dev->bell || !dev->bell_free || !dev->event)
		return -ENOMEM;
	for (i = 0; i < dev->bells; i++)
		dev->bell_free[dev->bell_nfree++] = i;
	return 0;
}

static void ccc_events_offer(struct ccc_dev *dev)
{
	u32 i, n = min_t(u32, virtqueue_get_vring_size(dev->eventq),
			 CCC_MAX_EVENTS);

	for (i = 0; i < n; i++)
		ccc_event_offer(dev, &dev->event[i]);
	virtqueue_kick(dev->eventq);
}

static struct ccc_dev *ccc_dev_alloc(struct virtio_device *vdev)
{
	struct ccc_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return NULL;
	kref_init(&dev->ref);
	spin_lock_init(&dev->slot_lock);
	spin_lock_init(&dev->bell_lock);
	spin_lock_init(&dev->watch_lock);
	INIT_DELAYED_WORK(&dev->work, ccc_work);
	dev->vdev = vdev;
	vdev->priv = dev;
	return dev;
}

/* Only one device: a flow has one bottleneck, and groups are the device's. */
static int ccc_publish(struct ccc_dev *dev)
{
	int err = 0;

	mutex_lock(&ccc_current_lock);
	if (rcu_dereference_protected(ccc_current,
				      lockdep_is_held(&ccc_current_lock)))
		err = -EBUSY;
	else
		rcu_assign_pointer(ccc_current, dev);
	mutex_unlock(&ccc_current_lock);
	if (err)
		dev_err(&dev->vdev->dev, "another device is in use already\n");
	return err;
}

static void ccc_unpublish(void)
{
	mutex_lock(&ccc_current_lock);
	RCU_INIT_POINTER(ccc_current, NULL);
	mutex_unlock(&ccc_current_lock);
}

static int ccc_dev_start(struct virtio_device *vdev)
{
	struct ccc_dev *dev = ccc_dev_alloc(vdev);
	int err;

	if (!dev)
		return -ENOMEM;
	err = ccc_read_config(dev);
	if (err)
		goto put;
	err = ccc_find_vqs(dev);
	if (err)
		goto put;
	err = ccc_alloc_messages(dev);
	if (err)
		goto del_vqs;
	/* The first chunk has the lines: without it there is no device. */
	if (!ccc_chunk_spare(dev)) {
		err = -ENOMEM;
		goto del_vqs;
	}
	err = ccc_publish(dev);
	if (err)
		goto del_vqs;

	virtio_device_ready(vdev);
	WRITE_ONCE(dev->up, true);
	ccc_events_offer(dev);
	queue_delayed_work(ccc_wq, &dev->work, 0);
	flush_delayed_work(&dev->work);
	return 0;

del_vqs:
	vdev->config->del_vqs(vdev);
put:
	vdev->priv = NULL;
	kref_put(&dev->ref, ccc_dev_release);
	return err;
}

static void ccc_detach_unused(struct virtqueue *vq)
{
	while (virtqueue_detach_unused_buf(vq))
		;
}

/*
 * Flows go on with their inner algorithm from their next ACK on; the tables
 * stay until the last of them has looked.
 */
static void ccc_dev_stop(struct virtio_device *vdev)
{
	struct ccc_dev *dev = vdev->priv;
	u32 i;

	/* After a resume that failed. */
	if (!dev)
		return;
	ccc_unpublish();
	spin_lock_bh(&dev->bell_lock);
	WRITE_ONCE(dev->up, false);
	spin_unlock_bh(&dev->bell_lock);
	synchronize_rcu();

	virtio_reset_device(vdev);
	cancel_delayed_work_sync(&dev->work);
	for (i = 0; i < dev->chunks; i++)
		ccc_chunk_withdraw(dev, dev->chunk[i]);
	ccc_detach_unused(dev->tableq);
	ccc_detach_unused(dev->doorbellq);
	ccc_detach_unused(dev->eventq);
	vdev->config->del_vqs(vdev);
	vdev->priv = NULL;
	kref_put(&dev->ref, ccc_dev_release);
}

static int ccc_validate(struct virtio_device *vdev)
{
	if (!virtio_has_feature(vdev, VIRTIO_F_VERSION_1)) {
		dev_err(&vdev->dev, "device is not VIRTIO 1\n");
		return -EINVAL;
	}
	/*
	 * Both sides use the tables all the time; they cannot be copied
	 * through a bounce buffer at every change.
	 */
	__virtio_clear_bit(vdev, VIRTIO_F_ACCESS_PLATFORM);
	return 0;
}

static int ccc_probe(struct virtio_device *vdev)
{
	return ccc_dev_start(vdev);
}

static void ccc_remove(struct virtio_device *vdev)
{
	ccc_dev_stop(vdev);
}

#ifdef CONFIG_PM_SLEEP
static int ccc_freeze(struct virtio_device *vdev)
{
	ccc_dev_stop(vdev);
	return 0;
}

static int ccc_restore(struct virtio_device *vdev)
{
	return ccc_dev_start(vdev);
}
#endif

static const struct virtio_device_id ccc_id_table[] = {
	{ VIRTIO_ID_CCC, VIRTIO_DEV_ANY_ID },
	{ 0 },
};
MODULE_DEVICE_TABLE(virtio, ccc_id_table);

static const unsigned int ccc_features[] = {
	VIRTIO_CCC_F_RATE_SHARE,
	VIRTIO_CCC_F_SLOT_CAP,
};

static struct virtio_driver ccc_driver = {
	.driver.name = KBUILD_MODNAME,
	.driver.owner = THIS_MODULE,
	.id_table = ccc_id_table,
	.feature_table = ccc_features,
	.feature_table_size = ARRAY_SIZE(ccc_features),
	.validate = ccc_validate,
	.probe = ccc_probe,
	.remove = ccc_remove,
#ifdef CONFIG_PM_SLEEP
	.freeze = ccc_freeze,
	.restore = ccc_restore,
#endif
};

int ccc_virtio_register(void)
{
	int err;

	ccc_wq = alloc_workqueue("ccc", WQ_UNBOUND, 0);
	if (!ccc_wq)
		return -ENOMEM;
	err = register_virtio_driver(&ccc_driver);
	if (err)
		destroy_workqueue(ccc_wq);
	return err;
}

void ccc_virtio_unregister(void)
{
	unregister_virtio_driver(&ccc_driver);
	destroy_workqueue(ccc_wq);
	/* Tables are freed by ccc_dev_free_rcu(), which is this module's. */
	rcu_barrier();
}
