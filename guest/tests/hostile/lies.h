/* SPDX-License-Identifier: GPL-2.0 */
/*
 * For tests: a guest that lies.  Built from the sources of the module and these
 * files, and never installed.  Parameters say which lies are told, of the flows
 * (lies.c) and from slots without a flow (empty_slots.c).
 */
#ifndef CCC_LIES_H
#define CCC_LIES_H

#include "flow.h"

/* The functions behind those that the linker has put before them. */
bool __real_ccc_doorbell_send(struct ccc_device *dev, u16 op, u32 slot,
			      u32 generation);

/* Odd while it is written, as in report.c. */
static inline void lies_step_seq(struct virtio_ccc_report *wire)
{
	WRITE_ONCE(wire->seq, cpu_to_le32(le32_to_cpu(wire->seq) + 1));
}

void lies_of_wire(struct virtio_ccc_report *wire);

void empty_slots_start(void);
void empty_slots_stop(void);

#endif /* CCC_LIES_H */
