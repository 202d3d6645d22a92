/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The device in use, and which of its slots are free.
 */
#include "ccc_driver.h"

/* Only one device: a flow has one bottleneck, and groups are the device's. */
static struct ccc_device *ccc_current;
static struct mtx ccc_current_lock;
MTX_SYSINIT(ccc_current_lock, &ccc_current_lock, "ccc device", MTX_DEF);

/* Changes when a flow that has no slot may find one. */
static u_int ccc_changes;

int
ccc_device_publish(struct ccc_device *dev)
{
	int error = EBUSY;

	mtx_lock(&ccc_current_lock);
	if (ccc_current == NULL) {
		ccc_current = dev;
		error = 0;
	}
	mtx_unlock(&ccc_current_lock);
	return (error);
}

void
ccc_device_unpublish(struct ccc_device *dev)
{
	mtx_lock(&ccc_current_lock);
	if (ccc_current == dev)
		ccc_current = NULL;
	mtx_unlock(&ccc_current_lock);
}

const struct ccc_config *
ccc_device_config(const struct ccc_device *dev)
{
	return (&dev->config);
}

const struct virtio_ccc_grant_line *
ccc_device_line(const struct ccc_device *dev, uint16_t line)
{
	return (&dev->tables.line[line]);
}

uint32_t
ccc_device_instance(const struct ccc_device *dev)
{
	return (le32toh(atomic_load_32(&dev->tables.status->instance)));
}

uint32_t
ccc_slot_changes(void)
{
	return (atomic_load_acq_int(&ccc_changes));
}

int
ccc_slots_alloc(struct ccc_device *dev)
{
	struct ccc_slots *slots = &dev->slots;
	uint32_t i, count = dev->config.slots;

	slots->slot = malloc(count * sizeof(*slots->slot), M_CCC,
	    M_WAITOK | M_ZERO);
	slots->free = malloc(count * sizeof(*slots->free), M_CCC, M_WAITOK);
	/* The lowest are taken first: neighbours round evenly. */
	for (i = 0; i < count; i++)
		slots->free[i] = count - 1 - i;
	slots->free_count = count;
	for (i = 0; i < count; i++) {
		slots->slot[i].dev = dev;
		slots->slot[i].report = &dev->tables.report[i];
		slots->slot[i].grant = &dev->tables.grant[i];
		slots->slot[i].index = i;
		slots->slot[i].rounding_offset = ccc_rounding_offset(i);
	}
	return (0);
}

void
ccc_slots_free(struct ccc_device *dev)
{
	free(dev->slots.slot, M_CCC);
	free(dev->slots.free, M_CCC);
}

/* A slot for a flow, with a new generation; NULL if there is none. */
struct ccc_slot *
ccc_slot_take(void)
{
	struct ccc_slot *slot = NULL;
	struct ccc_slots *slots;
	struct ccc_device *dev;

	mtx_lock(&ccc_current_lock);
	dev = ccc_current;
	if (dev != NULL)
		ccc_device_hold(dev);
	mtx_unlock(&ccc_current_lock);
	if (dev == NULL)
		return (NULL);
	slots = &dev->slots;
	mtx_lock(&slots->lock);
	if (slots->accepted && slots->free_count > 0) {
		slot = &slots->slot[slots->free[--slots->free_count]];
		slot->in_use = true;
		slot->offer = slots->offer;
		slot->generation = ccc_next_generation(slot->generation);
		slots->used++;
	}
	mtx_unlock(&slots->lock);
	/* Its reference is the slot's. */
	if (slot == NULL)
		ccc_device_put(dev);
	return (slot);
}

void
ccc_slot_drop(struct ccc_slot *slot)
{
	struct ccc_device *dev = slot->dev;
	struct ccc_slots *slots = &dev->slots;

	mtx_lock(&slots->lock);
	KASSERT(slot->in_use, ("ccc: slot %u is free", slot->index));
	slot->in_use = false;
	slots->free[slots->free_count++] = slot->index;
	if (slots->free_count == 1)
		atomic_add_rel_int(&ccc_changes, 1);
	slots->used--;
	mtx_unlock(&slots->lock);
	ccc_device_put(dev);
}

/*
 * Whether the tables have been the device's since the flow took the slot.
 *
 * To ask once is enough, though they may be withdrawn at any time: their
 * memory stays as long as the flow holds the slot, and is cleared to be offered
 * again no earlier than a grace period after that.  So who writes to the slot
 * does so in the epoch section in which it asked.
 */
bool
ccc_slot_is_live(const struct ccc_slot *slot)
{
	const struct ccc_slots *slots = &slot->dev->slots;

	return (atomic_load_bool(&slots->accepted) &&
	    atomic_load_32(&slots->offer) == slot->offer);
}

/* Flows of an earlier offer leave their slots at their next ACK. */
void
ccc_slots_begin_offer(struct ccc_device *dev)
{
	mtx_lock(&dev->slots.lock);
	dev->slots.offer++;
	mtx_unlock(&dev->slots.lock);
}

void
ccc_slots_accepted(struct ccc_device *dev)
{
	mtx_lock(&dev->slots.lock);
	dev->slots.accepted = true;
	atomic_add_rel_int(&ccc_changes, 1);
	mtx_unlock(&dev->slots.lock);
}

void
ccc_slots_withdraw(struct ccc_device *dev)
{
	mtx_lock(&dev->slots.lock);
	dev->slots.accepted = false;
	mtx_unlock(&dev->slots.lock);
}
