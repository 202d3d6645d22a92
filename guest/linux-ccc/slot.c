// SPDX-License-Identifier: GPL-2.0
/*
 * Which slots are free.
 */
#include <linux/bitmap.h>

#include "device.h"

atomic_t ccc_room = ATOMIC_INIT(0);

static void ccc_announce_room(void)
{
	atomic_inc_return_release(&ccc_room);
}

static struct ccc_slot *ccc_chunk_take(struct ccc_chunk *chunk)
{
	unsigned long n;

	if (!chunk->live || chunk->used == chunk->slots)
		return NULL;
	n = find_first_zero_bit(chunk->map, chunk->slots);
	__set_bit(n, chunk->map);
	chunk->used++;
	chunk->slot[n].turn = chunk->turn;
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
	lend = ccc_is_low(dev);
	spin_unlock_bh(&dev->slot_lock);
	/* Where it waits already, it goes on waiting. */
	if (lend && READ_ONCE(dev->up))
		queue_delayed_work(ccc_wq, &dev->work, 0);
	return slot;
}

/* A slot for a flow, with a new generation; NULL if there is none. */
struct ccc_slot *ccc_slot_take(void)
{
	struct ccc_slot *slot = NULL;
	struct ccc_dev *dev;

	rcu_read_lock();
	dev = ccc_dev_rcu();
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
	WRITE_ONCE(slot->sk, NULL);
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
	ccc_dev_put(dev);
}

/* Flows that were in the chunk before leave it at their next ACK. */
void ccc_chunk_begin_turn(struct ccc_dev *dev, struct ccc_chunk *chunk)
{
	spin_lock_bh(&dev->slot_lock);
	WRITE_ONCE(chunk->turn, chunk->turn + 1);
	spin_unlock_bh(&dev->slot_lock);
}

void ccc_chunk_adopted(struct ccc_dev *dev, struct ccc_chunk *chunk)
{
	spin_lock_bh(&dev->slot_lock);
	WRITE_ONCE(chunk->live, true);
	WRITE_ONCE(dev->free, dev->free + chunk->slots - chunk->used);
	WRITE_ONCE(dev->starved, false);
	ccc_announce_room();
	spin_unlock_bh(&dev->slot_lock);
}

void ccc_chunk_withdraw(struct ccc_dev *dev, struct ccc_chunk *chunk)
{
	spin_lock_bh(&dev->slot_lock);
	if (chunk->live) {
		WRITE_ONCE(chunk->live, false);
		WRITE_ONCE(dev->free, dev->free - (chunk->slots - chunk->used));
		ccc_announce_room();
	}
	spin_unlock_bh(&dev->slot_lock);
}
