// SPDX-License-Identifier: GPL-2.0
/*
 * The tables that are lent to the device, and the memory they are in.
 *
 * A table outlives its device: it goes with the last flow that holds a slot.
 */
#include <linux/bitmap.h>
#include <linux/slab.h>

#include "device.h"

#define CCC_GFP_TABLE	(GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN)

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
	kvfree(chunk);
}

static void ccc_chunk_init_slots(struct ccc_dev *dev, struct ccc_chunk *chunk,
				 u32 first, u32 lines)
{
	struct virtio_ccc_grant_line *line = (void *)(chunk->head + 1);
	struct virtio_ccc_slot_grant *grant = (void *)(line + lines);
	u32 i;

	for (i = 0; i < chunk->slots; i++) {
		struct ccc_slot *slot = &chunk->slot[i];

		slot->dev = dev;
		slot->chunk = chunk;
		slot->report = &chunk->report[i];
		slot->grant = &grant[i];
		slot->index = first + i;
		slot->offset = ccc_slot_offset(first + i);
		ccc_clock_slot_init(slot);
	}
}

struct ccc_chunk *ccc_chunk_alloc(struct ccc_dev *dev, u32 first, u32 lines)
{
	u32 n = min(dev->chunk_slots, dev->max_slots - first);
	struct ccc_chunk *chunk;

	chunk = kvzalloc(struct_size(chunk, slot, n), GFP_KERNEL);
	if (!chunk)
		return NULL;
	chunk->slots = n;
	chunk->report_size = n * sizeof(*chunk->report);
	chunk->grant_size = sizeof(*chunk->head) +
			    lines * sizeof(struct virtio_ccc_grant_line) +
			    n * sizeof(struct virtio_ccc_slot_grant);
	chunk->lend = kzalloc(sizeof(*chunk->lend), GFP_KERNEL);
	chunk->map = bitmap_zalloc(n, GFP_KERNEL);
	/* Without these the flows go on alone, until it is tried again. */
	chunk->report = alloc_pages_exact(chunk->report_size, CCC_GFP_TABLE);
	chunk->head = alloc_pages_exact(chunk->grant_size, CCC_GFP_TABLE);
	if (!chunk->lend || !chunk->map || !chunk->report || !chunk->head) {
		ccc_chunk_free(chunk);
		return NULL;
	}
	chunk->lend->first_slot = cpu_to_le32(first);
	chunk->lend->slots = cpu_to_le32(n);
	chunk->lend->grant_lines = cpu_to_le32(lines);
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

void ccc_dev_put(struct ccc_dev *dev)
{
	kref_put(&dev->ref, ccc_dev_release);
}
