/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver, virtio_ccc, as the congestion control, cc_ccc, sees it: slots of
 * the tables and messages about them.  Of TCP it knows nothing.
 */
#ifndef CCC_DEVICE_H
#define CCC_DEVICE_H

#include <ccc_kernel.h>

#include "common/grant.h"

/* Grant lines offered to the device: groups that one guest's flows can be in. */
#define	CCC_GRANT_LINES		16

/* The version of what follows, by which the kernel keeps the two together. */
#define	CCC_DEVICE_VERSION	1

struct ccc_device;

/* One slot of the tables.  Who holds it writes its report. */
struct ccc_slot {
	struct ccc_device *dev;
	struct virtio_ccc_report *report;
	const struct virtio_ccc_slot_grant *grant;
	uint32_t index;
	uint32_t rounding_offset;
	uint32_t generation;
	uint32_t offer;		/* of the tables, when the slot was taken */
	bool in_use;
};

/* What a device and its driver have agreed on. */
struct ccc_config {
	uint32_t slots;
	uint32_t grant_lines;
	uint32_t stale_us;
	bool rate_share;
	bool slot_cap;
};

/* ccc_slot.c */
struct ccc_slot *ccc_slot_take(void);
void	ccc_slot_drop(struct ccc_slot *slot);
bool	ccc_slot_is_live(const struct ccc_slot *slot);
uint32_t ccc_slot_changes(void);

/* ccc_doorbell.c */
void	ccc_doorbell_send(struct ccc_device *dev, uint16_t op, uint32_t slot,
	    uint32_t generation);

/* ccc_slot.c: what grants are read from. */
const struct ccc_config *ccc_device_config(const struct ccc_device *dev);
const struct virtio_ccc_grant_line *ccc_device_line(
	    const struct ccc_device *dev, uint16_t line);
uint32_t ccc_device_instance(const struct ccc_device *dev);
bool	ccc_device_is_stale(const struct ccc_device *dev);

#endif /* CCC_DEVICE_H */
