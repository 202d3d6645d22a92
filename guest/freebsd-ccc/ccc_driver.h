/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the driver.  Each structure is written by the file named above it.
 */
#ifndef CCC_DRIVER_H
#define CCC_DRIVER_H

#include "ccc_device.h"

#include <sys/bus.h>
#include <sys/sglist.h>
#include <sys/taskqueue.h>

#include <dev/virtio/virtio.h>
#include <dev/virtio/virtqueue.h>

#include "virtio_if.h"

#define	CCC_EVENT_BUFFERS	8
#define	CCC_TABLE_PIECES	3
#define	CCC_SLOTS_DEFAULT	1024
#define	CCC_SLOTS_MAX		16384

MALLOC_DECLARE(M_CCC);

/* ccc_slot.c: which slots are free. */
struct ccc_slots {
	struct mtx lock;
	struct ccc_slot *slot;
	uint32_t *free;		/* numbers; the last is taken next */
	uint32_t free_count;
	uint32_t used;
	uint32_t offer;		/* how often the tables were offered */
	bool accepted;		/* by the device; false: leave the slots */
};

/* ccc_tables.c: the memory of the tables, one extent. */
struct ccc_tables {
	struct virtio_ccc_extent *header;
	struct virtio_ccc_report *report;
	struct virtio_ccc_extent_status *status;
	struct virtio_ccc_grant_line *line;
	struct virtio_ccc_slot_grant *grant;
	size_t report_bytes;
	size_t grant_bytes;
};

/* ccc_doorbell.c: messages to the device, under the lock. */
struct ccc_doorbell {
	struct mtx lock;
	struct virtqueue *vq;
	struct virtio_ccc_doorbell *message;
	uint16_t *free;
	uint32_t messages;
	uint32_t free_count;
	uint64_t progress_us;	/* when the device last used a message */
	bool up;		/* the queue may be used */
	bool lost;		/* a message found no room */
	bool stale;		/* the device does not answer */
	struct {
		uint64_t sent;
		uint64_t full;
		uint64_t rescans;
		uint64_t stale;
	} stats;
};

/* ccc_control.c: tableq, eventq and the offer belong to this task. */
struct ccc_control {
	struct timeout_task task;
	struct virtqueue *table;
	struct virtqueue *events;
	struct virtio_ccc_event *event;
	uint32_t poll_ms;
	uint32_t wait_ms;	/* before the next offer */
	uint64_t wait_since_us;
	bool up;
	bool held;		/* the device has the chain */
	bool refused;
	bool release_asked;
	bool release_answered;
	struct {
		uint64_t resyncs;
		uint64_t policies;
		uint64_t releases;
		uint64_t bad_events;
	} stats;
};

/*
 * One device.  Every flow that holds a slot holds a reference, so the tables
 * outlive the device itself and a flow can find out at its next ACK.
 */
struct ccc_device {
	device_t bus;
	u_int references;
	struct ccc_config config;
	struct ccc_tables tables;
	struct ccc_slots slots;
	struct ccc_doorbell doorbell;
	struct ccc_control control;
	struct task reap;
};

extern struct taskqueue *ccc_taskqueue;

struct ccc_device *ccc_device_alloc(device_t bus);
void	ccc_device_hold(struct ccc_device *dev);
void	ccc_device_put(struct ccc_device *dev);
int	ccc_device_publish(struct ccc_device *dev);
void	ccc_device_unpublish(struct ccc_device *dev);

int	ccc_tables_alloc(struct ccc_device *dev);
void	ccc_tables_free(struct ccc_device *dev);
void	ccc_tables_clear(struct ccc_device *dev);

int	ccc_slots_alloc(struct ccc_device *dev);
void	ccc_slots_free(struct ccc_device *dev);
void	ccc_slots_begin_offer(struct ccc_device *dev);
void	ccc_slots_accepted(struct ccc_device *dev);
void	ccc_slots_withdraw(struct ccc_device *dev);

int	ccc_doorbell_alloc(struct ccc_device *dev);
void	ccc_doorbell_free(struct ccc_device *dev);
void	ccc_doorbell_start(struct ccc_device *dev);
void	ccc_doorbell_stop(struct ccc_device *dev);
bool	ccc_doorbell_push(struct ccc_device *dev, uint16_t op, uint32_t slot,
	    uint32_t generation);

int	ccc_control_alloc(struct ccc_device *dev);
void	ccc_control_free(struct ccc_device *dev);
void	ccc_control_start(struct ccc_device *dev);
void	ccc_control_stop(struct ccc_device *dev);
void	ccc_control_reset(struct ccc_device *dev);
void	ccc_control_intr(struct ccc_device *dev);

#endif /* CCC_DRIVER_H */
