/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory that is shared with the device, and how long a device lives.
 */
#include "ccc_driver.h"

#include <sys/refcount.h>

MALLOC_DEFINE(M_CCC, "ccc", "congestion control coupling");

struct taskqueue *ccc_taskqueue;

static void
device_reap(void *context, int pending __unused)
{
	struct ccc_device *dev = context;

	ccc_control_free(dev);
	ccc_doorbell_free(dev);
	ccc_slots_free(dev);
	ccc_tables_free(dev);
	mtx_destroy(&dev->slots.lock);
	mtx_destroy(&dev->doorbell.lock);
	free(dev, M_CCC);
}

struct ccc_device *
ccc_device_alloc(device_t bus)
{
	struct ccc_device *dev;

	dev = malloc(sizeof(*dev), M_CCC, M_WAITOK | M_ZERO);
	dev->bus = bus;
	refcount_init(&dev->references, 1);
	mtx_init(&dev->slots.lock, "ccc slots", NULL, MTX_DEF);
	mtx_init(&dev->doorbell.lock, "ccc doorbell", NULL, MTX_DEF);
	TASK_INIT(&dev->reap, 0, device_reap, dev);
	return (dev);
}

void
ccc_device_hold(struct ccc_device *dev)
{
	refcount_acquire(&dev->references);
}

/* The last may be a flow, whose connection is locked: others free memory. */
void
ccc_device_put(struct ccc_device *dev)
{
	if (refcount_release(&dev->references))
		taskqueue_enqueue(ccc_taskqueue, &dev->reap);
}

/* In one piece each: no structure may be split between descriptors. */
static void *
alloc_shared(size_t bytes)
{
	return (contigmalloc(bytes, M_CCC, M_WAITOK | M_ZERO, 0, ~(vm_paddr_t)0,
	    PAGE_SIZE, 0));
}

int
ccc_tables_alloc(struct ccc_device *dev)
{
	const struct ccc_config *config = &dev->config;
	struct ccc_tables *tables = &dev->tables;

	tables->report_bytes = config->slots * sizeof(*tables->report);
	tables->grant_bytes = sizeof(*tables->status) +
	    config->grant_lines * sizeof(*tables->line) +
	    config->slots * sizeof(*tables->grant);
	tables->header = alloc_shared(sizeof(*tables->header));
	tables->report = alloc_shared(tables->report_bytes);
	tables->status = alloc_shared(tables->grant_bytes);
	if (tables->header == NULL || tables->report == NULL ||
	    tables->status == NULL)
		return (ENOMEM);
	tables->line = (void *)(tables->status + 1);
	tables->grant = (void *)(tables->line + config->grant_lines);
	tables->header->slots = htole32(config->slots);
	tables->header->grant_lines = htole32(config->grant_lines);
	return (0);
}

void
ccc_tables_free(struct ccc_device *dev)
{
	struct ccc_tables *tables = &dev->tables;

	if (tables->header != NULL)
		contigfree(tables->header, sizeof(*tables->header), M_CCC);
	if (tables->report != NULL)
		contigfree(tables->report, tables->report_bytes, M_CCC);
	if (tables->status != NULL)
		contigfree(tables->status, tables->grant_bytes, M_CCC);
}

/* Before they are offered; nobody may be writing to them. */
void
ccc_tables_clear(struct ccc_device *dev)
{
	memset(dev->tables.report, 0, dev->tables.report_bytes);
	memset(dev->tables.status, 0, dev->tables.grant_bytes);
}

static void
queue_begin(void *unused __unused)
{
	ccc_taskqueue = taskqueue_create("ccc", M_WAITOK,
	    taskqueue_thread_enqueue, &ccc_taskqueue);
	taskqueue_start_threads(&ccc_taskqueue, 1, PI_NET, "ccc");
}
SYSINIT(ccc_queue, SI_SUB_DRIVERS, SI_ORDER_FIRST, queue_begin, NULL);

/* Of the devices that have gone, each is freed before their code is. */
static void
queue_end(void *unused __unused)
{
	taskqueue_drain_all(ccc_taskqueue);
	taskqueue_free(ccc_taskqueue);
}
SYSUNINIT(ccc_queue, SI_SUB_DRIVERS, SI_ORDER_FIRST, queue_end, NULL);
