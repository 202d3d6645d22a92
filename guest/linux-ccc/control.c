// SPDX-License-Identifier: GPL-2.0
/*
 * Offers of extents to the device, and what the device has to say about them.
 *
 * The tables are in the driver's own memory.  An extent of them counts only
 * once the device says that it has accepted it.
 */
#include <linux/device.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>

#include "device.h"

#define POLL_MIN_MS	10u
#define POLL_MAX_MS	1000u
/* How long an extent is kept back that the device did not keep. */
#define WAIT_MIN_MS	100u
#define WAIT_MAX_MS	30000u
/* Buffers of eventq; events handled at one time, and how long others wait then. */
#define EVENT_BUFFERS	8
#define EVENT_BUDGET	(8 * EVENT_BUFFERS)
#define EVENT_WAIT_MS	10

u32 (*ccc_control_reclaim)(struct ccc_device *dev, u32 most);

static int offer_extent(struct ccc_device *dev, struct ccc_extent *extent)
{
	struct scatterlist header, report, grant, *sgs[] = {
		&header, &report, &grant
	};
	int err;

	/*
	 * A flow of an earlier offer may be writing its last report.  It looks
	 * at the offer and writes in one section; see report.c.
	 */
	ccc_slot_begin_offer(dev, extent);
	synchronize_rcu();
	ccc_extent_clear(extent);
	sg_init_one(&header, extent->header, sizeof(*extent->header));
	sg_init_one(&report, extent->report, extent->report_bytes);
	sg_init_one(&grant, extent->status, extent->grant_bytes);
	err = virtqueue_add_sgs(dev->vq.table, sgs, 2, 1, extent, GFP_KERNEL);
	if (err)
		return err;
	extent->offer.held = true;
	extent->offer.refused = false;
	extent->offer.release_asked = false;
	dev->control.poll_ms = POLL_MIN_MS;
	virtqueue_kick(dev->vq.table);
	return 0;
}

/*
 * An extent that the device once gave back is offered again first, whether or
 * not flows that have no ACKs at present still hold slots of its last offer.
 */
static struct ccc_extent *spare_extent(struct ccc_device *dev)
{
	struct ccc_extent *extent;
	u32 i, first = 0;

	for (i = 0; i < dev->slots.extents; i++) {
		extent = dev->slots.extent[i];
		if (!extent->offer.held)
			return extent;
		first += extent->slots;
	}
	if (i == VIRTIO_CCC_EXTENTS_MAX || first >= dev->config.max_slots)
		return NULL;
	extent = ccc_extent_alloc(first, min(dev->config.extent_slots,
					     dev->config.max_slots - first),
				  i ? 0 : dev->config.grant_lines);
	if (extent)
		ccc_slot_add_extent(dev, extent);
	return extent;
}

/* The next offer is made later, and later each time, until one is accepted. */
static void offer_later(struct ccc_control *control)
{
	control->wait_ms = clamp(control->wait_ms * 2, WAIT_MIN_MS, WAIT_MAX_MS);
	control->wait_since = jiffies;
}

/* How long the next offer has to wait still. */
static unsigned long wait_left(const struct ccc_control *control)
{
	unsigned long end = control->wait_since +
			    msecs_to_jiffies(control->wait_ms);

	return control->wait_ms && time_before(jiffies, end) ? end - jiffies : 0;
}

/* Whether the device should have more slots, or the lines, and may take them. */
static bool should_offer(const struct ccc_device *dev)
{
	const struct ccc_slots *slots = &dev->slots;
	u32 i, count = 0;

	if (!ccc_slot_is_scarce(dev) && slots->extent[0]->offer.held)
		return false;

	for (i = 0; i < slots->extents; i++) {
		if (!slots->extent[i]->offer.held)
			return true;
		count += slots->extent[i]->slots;
	}
	return i < VIRTIO_CCC_EXTENTS_MAX && count < dev->config.max_slots;
}

static void offer_if_due(struct ccc_device *dev)
{
	struct ccc_extent *extent;

	if (dev->control.poll_ms || wait_left(&dev->control) ||
	    !should_offer(dev))
		return;
	extent = spare_extent(dev);
	if (!extent || offer_extent(dev, extent))
		offer_later(&dev->control);
}

static void handle_refusal(struct ccc_device *dev, struct ccc_extent *extent)
{
	if (extent->offer.refused)
		return;
	/* Once for all attempts until one is a success. */
	if (!dev->control.wait_ms)
		dev_err(&dev->vdev->dev,
			"slots %u to %u refused by the device, expected to be accepted (max_slots %u); flows without a slot go on alone, the slots are offered again; see the host's log\n",
			extent->first, extent->first + extent->slots - 1,
			dev->config.max_slots);
	extent->offer.refused = true;
	offer_later(&dev->control);
}

/* Whether the device has decided about every extent. */
static bool check_decisions(struct ccc_device *dev)
{
	bool decided = true;
	u32 i;

	for (i = 0; i < dev->slots.extents; i++) {
		struct ccc_extent *extent = dev->slots.extent[i];

		/* One on its way back still says that it was accepted. */
		if (!extent->offer.held || extent->offer.release_asked ||
		    extent->use.accepted)
			continue;
		switch (le32_to_cpu(READ_ONCE(extent->status->status))) {
		case VIRTIO_CCC_EXTENT_ACCEPTED:
			virt_rmb();	/* status before lines and grants */
			dev->control.wait_ms = 0;
			ccc_slot_accepted(dev, extent);
			break;
		case VIRTIO_CCC_EXTENT_PENDING:
			decided = false;
			break;
		default:
			handle_refusal(dev, extent);
		}
	}
	return decided;
}

static void release_extent(struct ccc_device *dev, u32 first)
{
	u32 i;

	for (i = 0; i < dev->slots.extents; i++) {
		struct ccc_extent *extent = dev->slots.extent[i];

		if (!extent->offer.held || extent->first != first)
			continue;
		extent->offer.release_asked = true;
		extent->offer.release_answered = false;
		ccc_slot_withdraw(dev, extent);
		u64_stats_inc(&dev->control.stats.releases);
		return;
	}
	u64_stats_inc(&dev->control.stats.bad_events);
}

static void handle_event(struct ccc_device *dev,
			 const struct virtio_ccc_event *event)
{
	switch (le16_to_cpu(READ_ONCE(event->type))) {
	case VIRTIO_CCC_EV_RESYNC:
		/* Slots are always up to date: the device need only look. */
		u64_stats_inc(&dev->control.stats.resyncs);
		ccc_doorbell_send(dev, VIRTIO_CCC_OP_RESCAN, 0, 0);
		break;
	case VIRTIO_CCC_EV_POLICY:
		/* Lines carry all that a flow obeys, at its next ACK. */
		u64_stats_inc(&dev->control.stats.policies);
		break;
	case VIRTIO_CCC_EV_RELEASE:
		release_extent(dev, le32_to_cpu(READ_ONCE(event->value)));
		break;
	default:
		u64_stats_inc(&dev->control.stats.bad_events);
	}
}

static void offer_event(struct ccc_device *dev, struct virtio_ccc_event *event)
{
	struct scatterlist sg;

	memset(event, 0, sizeof(*event));
	sg_init_one(&sg, event, sizeof(*event));
	/* There is room: the queue had this buffer, or is not filled yet. */
	virtqueue_add_inbuf(dev->vq.event, &sg, 1, event, GFP_KERNEL);
}

/* Whether there may be more: a device can send them without end. */
static bool handle_events(struct ccc_device *dev)
{
	unsigned int len, budget = EVENT_BUDGET;
	struct virtio_ccc_event *event;
	bool any = false;

	do {
		virtqueue_disable_cb(dev->vq.event);
		while (budget &&
		       (event = virtqueue_get_buf(dev->vq.event, &len))) {
			budget--;
			if (len >= sizeof(*event))
				handle_event(dev, event);
			else
				u64_stats_inc(&dev->control.stats.bad_events);
			offer_event(dev, event);
			any = true;
		}
	} while (!virtqueue_enable_cb(dev->vq.event) && budget);
	if (any)
		virtqueue_kick(dev->vq.event);
	return !budget;
}

/* Chains come back when they are released or refused. */
static void handle_tables(struct ccc_device *dev)
{
	struct ccc_extent *extent;
	unsigned int len;

	do {
		virtqueue_disable_cb(dev->vq.table);
		while ((extent = virtqueue_get_buf(dev->vq.table, &len))) {
			ccc_slot_withdraw(dev, extent);
			extent->offer.held = false;
			if (!extent->offer.refused)
				offer_later(&dev->control);
		}
	} while (!virtqueue_enable_cb(dev->vq.table));
}

/* Whether the device has been told of every extent that it wants back. */
static bool answer_releases(struct ccc_device *dev)
{
	bool answered = true;
	u32 i;

	for (i = 0; i < dev->slots.extents; i++) {
		struct ccc_extent *extent = dev->slots.extent[i];

		if (!extent->offer.held || !extent->offer.release_asked ||
		    extent->offer.release_answered)
			continue;
		extent->offer.release_answered =
			ccc_doorbell_send(dev, VIRTIO_CCC_OP_RELEASE,
					  extent->first, 0);
		answered &= extent->offer.release_answered;
	}
	return answered;
}

/* Nothing is left that only another look will show or that found no room. */
static bool is_settled(struct ccc_device *dev)
{
	bool answered = answer_releases(dev);

	return check_decisions(dev) && answered;
}

/* If flows look for slots in vain, and none are on their way. */
static void reclaim_if_starved(struct ccc_device *dev)
{
	if (READ_ONCE(dev->slots.starved) && !dev->control.poll_ms)
		ccc_control_reclaim(dev, max(dev->config.extent_slots / 4, 1u));
}

/* When to look again though nothing has happened. */
static unsigned long next_look(struct ccc_device *dev)
{
	unsigned long delay = MAX_SCHEDULE_TIMEOUT;

	if (READ_ONCE(dev->slots.starved))
		delay = msecs_to_jiffies(POLL_MAX_MS);
	if (dev->control.wait_ms && should_offer(dev))
		delay = min(delay, max(wait_left(&dev->control), 1ul));
	return delay;
}

/* Look again after @delay, in jiffies, or when something happens. */
static void look_after(struct ccc_device *dev, unsigned long delay)
{
	if (delay != MAX_SCHEDULE_TIMEOUT)
		queue_delayed_work(ccc_device_wq, &dev->control.work, delay);
}

static void control_work(struct work_struct *work)
{
	struct ccc_control *control = container_of(work, struct ccc_control,
						   work.work);
	struct ccc_device *dev = container_of(control, struct ccc_device,
					      control);
	bool more;

	if (!ccc_device_is_up(dev))
		return;
	more = handle_events(dev);
	if (is_settled(dev))
		control->poll_ms = 0;
	handle_tables(dev);
	offer_if_due(dev);
	reclaim_if_starved(dev);
	if (more) {
		look_after(dev, msecs_to_jiffies(EVENT_WAIT_MS));
		return;
	}
	if (is_settled(dev)) {
		control->poll_ms = 0;
		look_after(dev, next_look(dev));
		return;
	}
	/* Acceptance raises no interrupt: it is rare, and seen by looking. */
	control->poll_ms = control->poll_ms ?: POLL_MIN_MS;
	look_after(dev, msecs_to_jiffies(control->poll_ms));
	control->poll_ms = min(control->poll_ms * 2, POLL_MAX_MS);
}

void ccc_control_callback(struct virtqueue *vq)
{
	struct ccc_device *dev = vq->vdev->priv;

	if (ccc_device_is_up(dev))
		mod_delayed_work(ccc_device_wq, &dev->control.work, 0);
}

int ccc_control_init(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;

	INIT_DELAYED_WORK(&control->work, control_work);
	control->event = kcalloc(EVENT_BUFFERS, sizeof(*control->event),
				 GFP_KERNEL);
	/* The first extent has the grant lines: without it there is no device. */
	return control->event && spare_extent(dev) ? 0 : -ENOMEM;
}

/* Before anybody else may use the queues. */
void ccc_control_start(struct ccc_device *dev)
{
	u32 i, n = min_t(u32, virtqueue_get_vring_size(dev->vq.event),
			 EVENT_BUFFERS);

	for (i = 0; i < n; i++)
		offer_event(dev, &dev->control.event[i]);
	virtqueue_kick(dev->vq.event);
}

/* Flows leave the extents at their next ACK. */
void ccc_control_stop(struct ccc_device *dev)
{
	u32 i;

	for (i = 0; i < dev->slots.extents; i++)
		ccc_slot_withdraw(dev, dev->slots.extent[i]);
}
