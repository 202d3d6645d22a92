// SPDX-License-Identifier: GPL-2.0
/*
 * The device that is in use, and how long it lives.
 */
#include <linux/device.h>
#include <linux/slab.h>

#include "device.h"

static struct ccc_device __rcu *ccc_current;

struct workqueue_struct *ccc_device_wq;

struct ccc_device *ccc_device_alloc(struct virtio_device *vdev)
{
	struct ccc_device *dev = kzalloc(sizeof(*dev), GFP_KERNEL);

	if (!dev)
		return NULL;
	kref_init(&dev->ref);
	spin_lock_init(&dev->slots.lock);
	spin_lock_init(&dev->doorbell.lock);
	spin_lock_init(&dev->epochs.lock);
	dev->vdev = vdev;
	return dev;
}

static void ccc_device_free_rcu(struct rcu_head *rcu)
{
	struct ccc_device *dev = container_of(rcu, struct ccc_device, rcu);
	u32 i;

	for (i = 0; i < dev->slots.extents; i++)
		ccc_extent_free(dev->slots.extent[i]);
	kfree(dev->control.event);
	kfree(dev->doorbell.message);
	kfree(dev->doorbell.place);
	kfree(dev->doorbell.free);
	kfree(dev);
}

/* Readers of debugfs and inet_diag may still look at a slot. */
static void device_release(struct kref *ref)
{
	struct ccc_device *dev = container_of(ref, struct ccc_device, ref);

	call_rcu(&dev->rcu, ccc_device_free_rcu);
}

void ccc_device_put(struct ccc_device *dev)
{
	kref_put(&dev->ref, device_release);
}

/* Only one device: a flow has one bottleneck, and groups are the device's. */
int ccc_device_publish(struct ccc_device *dev)
{
	if (!unrcu_pointer(cmpxchg(&ccc_current, NULL, RCU_INITIALIZER(dev))))
		return 0;
	dev_err(&dev->vdev->dev,
		"too many devices: expected 1 in a guest, got another; give the guest one only\n");
	return -EBUSY;
}

void ccc_device_unpublish(void)
{
	RCU_INIT_POINTER(ccc_current, NULL);
}

struct ccc_device *ccc_device_rcu(void)
{
	return rcu_dereference(ccc_current);
}

int ccc_device_init(void)
{
	ccc_device_wq = alloc_workqueue("ccc", WQ_UNBOUND, 0);
	return ccc_device_wq ? 0 : -ENOMEM;
}

void ccc_device_exit(void)
{
	destroy_workqueue(ccc_device_wq);
	/* Tables are freed by ccc_device_free_rcu(), which is this module's. */
	rcu_barrier();
}
