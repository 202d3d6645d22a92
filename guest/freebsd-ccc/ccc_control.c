/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The offer of the tables to the device, and what the device says of it.
 *
 * The tables are in the driver's own memory and count only once the device says
 * that it has accepted them.
 */
#include "ccc_driver.h"

#define	POLL_MIN_MS	10u
#define	POLL_MAX_MS	1000u
/* How long tables are kept back that the device did not keep. */
#define	WAIT_MIN_MS	100u
#define	WAIT_MAX_MS	30000u
/* Events handled at one time, and how long others wait then. */
#define	EVENT_BUDGET	(8 * CCC_EVENT_BUFFERS)
#define	EVENT_WAIT_MS	10u

static void
look_after(struct ccc_device *dev, uint32_t ms)
{
	taskqueue_enqueue_timeout_sbt(ccc_taskqueue, &dev->control.task,
	    SBT_1MS * ms, 0, C_PREL(4));
}

/* A table is contiguous, and a segment of its own whatever lies beside it. */
static int
append_table(struct sglist *list, void *table, size_t bytes)
{
	struct sglist one;
	int error;

	sglist_init(&one, 1, &list->sg_segs[list->sg_nseg]);
	error = sglist_append(&one, table, bytes);
	if (error == 0)
		list->sg_nseg++;
	return (error);
}

static int
enqueue_tables(struct ccc_device *dev)
{
	struct ccc_tables *tables = &dev->tables;
	struct sglist_seg segment[CCC_TABLE_PIECES];
	struct sglist list;
	int error;

	sglist_init(&list, nitems(segment), segment);
	error = append_table(&list, tables->header, sizeof(*tables->header));
	if (error == 0)
		error = append_table(&list, tables->report,
		    tables->report_bytes);
	if (error == 0)
		error = append_table(&list, tables->status,
		    tables->grant_bytes);
	if (error == 0)
		error = virtqueue_enqueue(dev->control.table, tables, &list, 2,
		    1);
	return (error);
}

/* The next offer is made later, and later each time, until one is accepted. */
static void
offer_later(struct ccc_control *control)
{
	control->wait_ms = clamp_t(uint32_t, control->wait_ms * 2, WAIT_MIN_MS,
	    WAIT_MAX_MS);
	control->wait_since_us = ccc_now_us();
}

static uint32_t
wait_left_ms(const struct ccc_control *control)
{
	uint64_t waited_ms = (ccc_now_us() - control->wait_since_us) / 1000;

	return (waited_ms < control->wait_ms ? control->wait_ms - waited_ms : 0);
}

static void
offer(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;
	int error;

	/*
	 * A flow of an earlier offer may be writing its last report.  It looks
	 * at the offer and writes in one epoch section.
	 */
	ccc_slots_begin_offer(dev);
	NET_EPOCH_WAIT();
	ccc_tables_clear(dev);
	error = enqueue_tables(dev);
	if (error != 0) {
		offer_later(control);
		device_printf(dev->bus, "tables not offered to the device, "
		    "error %d: again in %u ms\n", error, control->wait_ms);
		return;
	}
	control->held = true;
	control->refused = false;
	control->release_asked = false;
	control->poll_ms = POLL_MIN_MS;
	virtqueue_notify(control->table);
}

static void
handle_event(struct ccc_device *dev, const struct virtio_ccc_event *event)
{
	struct ccc_control *control = &dev->control;

	switch (le16toh(event->type)) {
	case VIRTIO_CCC_EV_RESYNC:
		/* Slots are always up to date: the device need only look. */
		control->stats.resyncs++;
		ccc_doorbell_send(dev, VIRTIO_CCC_OP_RESCAN, 0, 0);
		break;
	case VIRTIO_CCC_EV_POLICY:
		/* Lines carry all that a flow obeys, at its next ACK. */
		control->stats.policies++;
		break;
	case VIRTIO_CCC_EV_RELEASE:
		if (!control->held || le32toh(event->value) != 0) {
			control->stats.bad_events++;
			break;
		}
		control->release_asked = true;
		control->release_answered = false;
		ccc_slots_withdraw(dev);
		control->stats.releases++;
		break;
	default:
		control->stats.bad_events++;
	}
}

static void
offer_event(struct ccc_device *dev, struct virtio_ccc_event *event)
{
	struct sglist_seg segment;
	struct sglist list;

	sglist_init(&list, 1, &segment);
	if (sglist_append(&list, event, sizeof(*event)) == 0)
		(void)virtqueue_enqueue(dev->control.events, event, &list, 0, 1);
}

/* Whether there are more than a device that behaves would have sent. */
static bool
handle_events(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;
	struct virtio_ccc_event *event;
	int budget = EVENT_BUDGET;
	uint32_t length;

	while (budget > 0 &&
	    (event = virtqueue_dequeue(control->events, &length)) != NULL) {
		if (length >= sizeof(*event))
			handle_event(dev, event);
		else
			control->stats.bad_events++;
		offer_event(dev, event);
		budget--;
	}
	if (budget < EVENT_BUDGET)
		virtqueue_notify(control->events);
	return (budget == 0);
}

static void
handle_refusal(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;

	if (control->refused)
		return;
	/* Once for all attempts until one is a success. */
	if (control->wait_ms == 0)
		device_printf(dev->bus, "%u slots refused by the device, "
		    "expected to be accepted; flows go on alone, the slots are "
		    "offered again; see the host's log\n", dev->config.slots);
	control->refused = true;
	offer_later(control);
}

/* Whether the device has decided. */
static bool
check_decision(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;

	/* Tables on their way back still say that they were accepted. */
	if (!control->held || control->release_asked || dev->slots.accepted)
		return (true);
	switch (le32toh(atomic_load_32(&dev->tables.status->status))) {
	case VIRTIO_CCC_EXTENT_ACCEPTED:
		atomic_thread_fence_acq();	/* status before lines */
		control->wait_ms = 0;
		ccc_slots_accepted(dev);
		return (true);
	case VIRTIO_CCC_EXTENT_PENDING:
		return (false);
	default:
		handle_refusal(dev);
		return (true);
	}
}

/* Whether the device knows that it may give the tables back. */
static bool
answer_release(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;

	if (!control->held || !control->release_asked ||
	    control->release_answered)
		return (true);
	control->release_answered = ccc_doorbell_push(dev,
	    VIRTIO_CCC_OP_RELEASE, 0, 0);
	return (control->release_answered);
}

/* The device has given the tables back. */
static void
take_back(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;

	if (virtqueue_dequeue(control->table, NULL) == NULL)
		return;
	check_decision(dev);
	ccc_slots_withdraw(dev);
	control->held = false;
	if (!control->refused)
		offer_later(control);
}

static void
control_task(void *context, int pending __unused)
{
	struct ccc_device *dev = context;
	struct ccc_control *control = &dev->control;
	bool more, settled;

	if (!atomic_load_bool(&control->up))
		return;
	more = handle_events(dev);
	take_back(dev);
	if (!control->held && wait_left_ms(control) == 0)
		offer(dev);
	settled = check_decision(dev);
	settled = answer_release(dev) && settled;
	if (virtqueue_enable_intr(control->events) != 0 ||
	    virtqueue_enable_intr(control->table) != 0 || more) {
		look_after(dev, EVENT_WAIT_MS);
	} else if (!settled) {
		/* Acceptance raises no interrupt: it is rare, and seen by looking. */
		control->poll_ms = clamp_t(uint32_t, control->poll_ms,
		    POLL_MIN_MS, POLL_MAX_MS);
		look_after(dev, control->poll_ms);
		control->poll_ms *= 2;
	} else if (!control->held) {
		look_after(dev, max_t(uint32_t, wait_left_ms(control), 1));
	}
}

void
ccc_control_intr(struct ccc_device *dev)
{
	if (atomic_load_bool(&dev->control.up))
		taskqueue_enqueue_timeout_sbt(ccc_taskqueue, &dev->control.task,
		    0, 0, 0);
}

int
ccc_control_alloc(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;

	TIMEOUT_TASK_INIT(ccc_taskqueue, &control->task, 0, control_task, dev);
	control->event = contigmalloc(CCC_EVENT_BUFFERS *
	    sizeof(*control->event), M_CCC, M_WAITOK | M_ZERO, 0,
	    ~(vm_paddr_t)0, PAGE_SIZE, 0);
	return (control->event == NULL ? ENOMEM : 0);
}

void
ccc_control_free(struct ccc_device *dev)
{
	if (dev->control.event != NULL)
		contigfree(dev->control.event, CCC_EVENT_BUFFERS *
		    sizeof(*dev->control.event), M_CCC);
}

/* The device's queues are there, and empty. */
void
ccc_control_start(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;
	int i, n = min_t(int, virtqueue_size(control->events),
	    CCC_EVENT_BUFFERS);

	control->held = false;
	control->wait_ms = 0;
	for (i = 0; i < n; i++)
		offer_event(dev, &control->event[i]);
	virtqueue_notify(control->events);
	atomic_store_bool(&control->up, true);
	ccc_control_intr(dev);
}

/* Then nobody uses the queues; flows leave the tables at their next ACK. */
void
ccc_control_stop(struct ccc_device *dev)
{
	atomic_store_bool(&dev->control.up, false);
	taskqueue_drain_timeout(ccc_taskqueue, &dev->control.task);
	ccc_slots_withdraw(dev);
}

/* The device has been reset, and holds nothing any more. */
void
ccc_control_reset(struct ccc_device *dev)
{
	struct ccc_control *control = &dev->control;
	int last;

	for (last = 0; virtqueue_drain(control->table, &last) != NULL;)
		;
	for (last = 0; virtqueue_drain(control->events, &last) != NULL;)
		;
	for (last = 0; virtqueue_drain(dev->doorbell.vq, &last) != NULL;)
		;
	control->held = false;
}
