// SPDX-License-Identifier: GPL-2.0
/*
 * Which slots are free, and who holds the others.
 */
#include <linux/bitmap.h>

#include "device.h"

atomic_t ccc_slot_seq = ATOMIC_INIT(0);

static struct ccc_slot *take_from(struct ccc_extent *extent, struct sock *sk)
{
	struct ccc_slot *slot;
	unsigned long n;

	if (!extent->use.accepted || extent->use.count == extent->slots)
		return NULL;
	n = find_first_zero_bit(extent->in_use, extent->slots);
	__set_bit(n, extent->in_use);
	WRITE_ONCE(extent->use.count, extent->use.count + 1);
	slot = &extent->slot[n];
	WRITE_ONCE(slot->offer_seq, extent->use.offer_seq);
	WRITE_ONCE(slot->generation, ccc_next_generation(slot->generation));
	WRITE_ONCE(slot->sk, sk);
	return slot;
}

/* The lowest free slot: neighbours round evenly, and the device looks less. */
static struct ccc_slot *take_any(struct ccc_device *dev, struct sock *sk)
{
	struct ccc_slots *slots = &dev->slots;
	struct ccc_slot *slot = NULL;
	bool scarce;
	u32 i;

	spin_lock_bh(&slots->lock);
	for (i = 0; i < slots->extents && !slot; i++)
		slot = take_from(slots->extent[i], sk);
	if (slot) {
		kref_get(&dev->ref);
		WRITE_ONCE(slots->free, slots->free - 1);
	} else {
		WRITE_ONCE(slots->starved, true);
	}
	scarce = ccc_slot_is_scarce(dev);
	spin_unlock_bh(&slots->lock);
	/* Where it waits already, it goes on waiting. */
	if (scarce && ccc_device_is_up(dev))
		queue_delayed_work(ccc_device_wq, &dev->control.work, 0);
	return slot;
}

/*
 * A slot for a flow, with a new generation; NULL if there is none.  It is live
 * in the RCU section of the caller.
 */
struct ccc_slot *ccc_slot_take(struct sock *sk)
{
	struct ccc_device *dev = ccc_device_rcu();

	if (dev && (READ_ONCE(dev->slots.free) ||
		    !READ_ONCE(dev->slots.starved)))
		return take_any(dev, sk);
	return NULL;
}

void ccc_slot_drop(struct ccc_slot *slot)
{
	struct ccc_extent *extent = slot->extent;
	struct ccc_device *dev = slot->dev;
	struct ccc_slots *slots = &dev->slots;

	spin_lock_bh(&slots->lock);
	WRITE_ONCE(slot->sk, NULL);
	__clear_bit(slot - extent->slot, extent->in_use);
	WRITE_ONCE(extent->use.count, extent->use.count - 1);
	if (extent->use.accepted) {
		WRITE_ONCE(slots->free, slots->free + 1);
		if (slots->starved) {
			WRITE_ONCE(slots->starved, false);
			atomic_inc_return_release(&ccc_slot_seq);
		}
	}
	spin_unlock_bh(&slots->lock);
	ccc_device_put(dev);
}

/* The socket that holds the slot, with a reference; NULL if none does. */
struct sock *ccc_slot_hold_socket(struct ccc_slot *slot)
{
	struct ccc_slots *slots = &slot->dev->slots;
	struct sock *sk;

	spin_lock_bh(&slots->lock);
	/* It is there as long as it holds the slot, which ends under this lock. */
	sk = READ_ONCE(slot->sk);
	if (sk)
		sock_hold(sk);
	spin_unlock_bh(&slots->lock);
	return sk;
}

/*
 * The slot in use at @pos or after it, which @pos is then of.  Without the lock: it
 * may be free by now, and one that has just been taken be missed.
 */
struct ccc_slot *ccc_slot_in_use(const struct ccc_device *dev, loff_t *pos)
{
	/* Pairs with ccc_slot_add_extent(). */
	u32 i, extents = smp_load_acquire(&dev->slots.extents);

	for (i = 0; i < extents; i++) {
		struct ccc_extent *extent = dev->slots.extent[i];
		unsigned long n = *pos > extent->first ? *pos - extent->first : 0;

		n = data_race(find_next_bit(extent->in_use, extent->slots, n));
		if (n < extent->slots) {
			*pos = extent->first + n;
			return &extent->slot[n];
		}
	}
	return NULL;
}

void ccc_slot_add_extent(struct ccc_device *dev, struct ccc_extent *extent)
{
	struct ccc_slots *slots = &dev->slots;
	u32 i;

	for (i = 0; i < extent->slots; i++) {
		struct ccc_slot *slot = &extent->slot[i];

		slot->dev = dev;
		slot->extent = extent;
		slot->report = &extent->report[i];
		slot->grant = &extent->grant[i];
		slot->index = extent->first + i;
		slot->rounding_offset = ccc_rounding_offset(slot->index);
	}
	spin_lock_bh(&slots->lock);
	slots->extent[slots->extents] = extent;
	/* The extent before its number, for those who take no lock. */
	smp_store_release(&slots->extents, slots->extents + 1);
	spin_unlock_bh(&slots->lock);
}

/* Flows that were in the extent before leave it at their next ACK. */
void ccc_slot_begin_offer(struct ccc_device *dev, struct ccc_extent *extent)
{
	spin_lock_bh(&dev->slots.lock);
	WRITE_ONCE(extent->use.offer_seq, extent->use.offer_seq + 1);
	spin_unlock_bh(&dev->slots.lock);
}

void ccc_slot_accepted(struct ccc_device *dev, struct ccc_extent *extent)
{
	struct ccc_slots *slots = &dev->slots;

	spin_lock_bh(&slots->lock);
	WRITE_ONCE(extent->use.accepted, true);
	WRITE_ONCE(slots->free,
		   slots->free + extent->slots - extent->use.count);
	WRITE_ONCE(slots->starved, false);
	atomic_inc_return_release(&ccc_slot_seq);
	spin_unlock_bh(&slots->lock);
}

void ccc_slot_withdraw(struct ccc_device *dev, struct ccc_extent *extent)
{
	struct ccc_slots *slots = &dev->slots;

	spin_lock_bh(&slots->lock);
	if (extent->use.accepted) {
		WRITE_ONCE(extent->use.accepted, false);
		WRITE_ONCE(slots->free,
			   slots->free - (extent->slots - extent->use.count));
		atomic_inc_return_release(&ccc_slot_seq);
	}
	spin_unlock_bh(&slots->lock);
}
