// SPDX-License-Identifier: GPL-2.0
/*
 * The memory of an extent of the tables.
 */
#include <linux/bitmap.h>
#include <linux/slab.h>

#include "device.h"

#define GFP_TABLE	(GFP_KERNEL | __GFP_ZERO | __GFP_NOWARN)

void ccc_extent_free(struct ccc_extent *extent)
{
	if (extent->report)
		free_pages_exact(extent->report, extent->report_bytes);
	if (extent->status)
		free_pages_exact(extent->status, extent->grant_bytes);
	bitmap_free(extent->in_use);
	kfree(extent->header);
	kvfree(extent);
}

struct ccc_extent *ccc_extent_alloc(u32 first, u32 slots, u32 lines)
{
	struct ccc_extent *extent;

	extent = kvzalloc(struct_size(extent, slot, slots), GFP_KERNEL);
	if (!extent)
		return NULL;
	extent->first = first;
	extent->slots = slots;
	extent->report_bytes = slots * sizeof(*extent->report);
	extent->grant_bytes = sizeof(*extent->status) +
			      lines * sizeof(*extent->line) +
			      slots * sizeof(*extent->grant);
	extent->header = kzalloc(sizeof(*extent->header), GFP_KERNEL);
	extent->in_use = bitmap_zalloc(slots, GFP_KERNEL);
	/* Without these the flows go on alone, until it is tried again. */
	extent->report = alloc_pages_exact(extent->report_bytes, GFP_TABLE);
	extent->status = alloc_pages_exact(extent->grant_bytes, GFP_TABLE);
	if (!extent->header || !extent->in_use || !extent->report ||
	    !extent->status) {
		ccc_extent_free(extent);
		return NULL;
	}
	extent->line = (void *)(extent->status + 1);
	extent->grant = (void *)(extent->line + lines);
	extent->header->first_slot = cpu_to_le32(first);
	extent->header->slots = cpu_to_le32(slots);
	extent->header->grant_lines = cpu_to_le32(lines);
	return extent;
}

/* Before it is offered; nobody may be writing to it. */
void ccc_extent_clear(struct ccc_extent *extent)
{
	memset(extent->report, 0, extent->report_bytes);
	memset(extent->status, 0, extent->grant_bytes);
}
