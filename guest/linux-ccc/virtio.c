// SPDX-License-Identifier: GPL-2.0
/*
 * The virtio congestion control coupling device: from probe to removal.
 */
#include <linux/device.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/virtio_config.h>

#include "device.h"

static unsigned int slots = 256;
module_param(slots, uint, 0444);
MODULE_PARM_DESC(slots, "slots of one chunk of the tables (default 256)");

#define CCC_MAX_CHUNK_SLOTS	4096

/* Protects the publication of ccc_current. */
static DEFINE_MUTEX(ccc_current_lock);
static struct ccc_dev __rcu *ccc_current;

struct ccc_dev *ccc_dev_rcu(void)
{
	return rcu_dereference(ccc_current);
}

static int ccc_find_vqs(struct ccc_dev *dev)
{
	struct virtqueue *vqs[VIRTIO_CCC_VQ_COUNT];
	int err;
#ifdef CCC_HAVE_VIRTQUEUE_INFO
	struct virtqueue_info info[VIRTIO_CCC_VQ_COUNT] = {
		[VIRTIO_CCC_VQ_TABLE] = { "table", ccc_queue_callback },
		[VIRTIO_CCC_VQ_DOORBELL] = { "doorbell" },
		[VIRTIO_CCC_VQ_EVENT] = { "event", ccc_queue_callback },
	};

	err = virtio_find_vqs(dev->vdev, VIRTIO_CCC_VQ_COUNT, vqs, info, NULL);
#else
	vq_callback_t *callbacks[VIRTIO_CCC_VQ_COUNT] = {
		[VIRTIO_CCC_VQ_TABLE] = ccc_queue_callback,
		[VIRTIO_CCC_VQ_EVENT] = ccc_queue_callback,
	};
	static const char * const names[VIRTIO_CCC_VQ_COUNT] = {
		"table", "doorbell", "event"
	};

	err = virtio_find_vqs(dev->vdev, VIRTIO_CCC_VQ_COUNT, vqs, callbacks,
			      names, NULL);
#endif
	if (err)
		return err;
	dev->tableq = vqs[VIRTIO_CCC_VQ_TABLE];
	dev->doorbellq = vqs[VIRTIO_CCC_VQ_DOORBELL];
	dev->eventq = vqs[VIRTIO_CCC_VQ_EVENT];
	virtqueue_disable_cb(dev->doorbellq);
	return 0;
}

static int ccc_read_config(struct ccc_dev *dev)
{
	struct virtio_device *vdev = dev->vdev;
	u32 revision, stale_us;

	virtio_cread_le(vdev, struct virtio_ccc_config, revision, &revision);
	if (revision != VIRTIO_CCC_REVISION) {
		dev_err(&vdev->dev,
			"device has revision %u, this driver knows only %u\n",
			revision, VIRTIO_CCC_REVISION);
		return -ENODEV;
	}
	virtio_cread_le(vdev, struct virtio_ccc_config, max_slots,
			&dev->max_slots);
	virtio_cread_le(vdev, struct virtio_ccc_config, max_grant_lines, &dev->lines);
	virtio_cread_le(vdev, struct virtio_ccc_config, stale_us, &stale_us);
	dev->stale_us = ccc_stale_us(stale_us);
	if (!dev->max_slots || !dev->lines) {
		dev_err(&vdev->dev, "device takes %u slots and %u lines\n",
			dev->max_slots, dev->lines);
		return -ENODEV;
	}
	dev->lines = min_t(u32, dev->lines, CCC_LINES);
	dev->max_slots = min_t(u32, dev->max_slots,
			       CCC_MAX_CHUNKS * CCC_MAX_CHUNK_SLOTS);
	dev->chunk_slots = clamp_t(u32, slots, 1, CCC_MAX_CHUNK_SLOTS);
	dev->chunk_slots = min(dev->chunk_slots, dev->max_slots);
	dev->rate_share = virtio_has_feature(vdev, VIRTIO_CCC_F_RATE_SHARE);
	dev->slot_cap = virtio_has_feature(vdev, VIRTIO_CCC_F_SLOT_CAP);
	return 0;
}

static int ccc_alloc_messages(struct ccc_dev *dev)
{
	u32 i;

	dev->bells = min_t(u32, virtqueue_get_vring_size(dev->doorbellq),
			   U16_MAX);
	dev->bell = kcalloc(dev->bells, sizeof(*dev->bell), GFP_KERNEL);
	dev->bell_free = kcalloc(dev->bells, sizeof(*dev->bell_free),
				 GFP_KERNEL);
	dev->event = kcalloc(CCC_MAX_EVENTS, sizeof(*dev->event), GFP_KERNEL);
	if (!dev->bell || !dev->bell_free || !dev->event)
		return -ENOMEM;
	for (i = 0; i < dev->bells; i++)
		dev->bell_free[dev->bell_nfree++] = i;
	return 0;
}

static void ccc_events_offer(struct ccc_dev *dev)
{
	u32 i, n = min_t(u32, virtqueue_get_vring_size(dev->eventq),
			 CCC_MAX_EVENTS);

	for (i = 0; i < n; i++)
		ccc_event_offer(dev, &dev->event[i]);
	virtqueue_kick(dev->eventq);
}

static struct ccc_dev *ccc_dev_alloc(struct virtio_device *vdev)
{
	struct ccc_dev *dev = kzalloc(sizeof(*dev), GFP_KERNEL);
	u32 i;

	if (!dev)
		return NULL;
	kref_init(&dev->ref);
	spin_lock_init(&dev->slot_lock);
	spin_lock_init(&dev->bell_lock);
	spin_lock_init(&dev->watch_lock);
	for (i = 0; i < CCC_LINES; i++)
		dev->clock[i].waiting = RB_ROOT_CACHED;
	INIT_DELAYED_WORK(&dev->work, ccc_work);
	dev->vdev = vdev;
	vdev->priv = dev;
	return dev;
}

/* Only one device: a flow has one bottleneck, and groups are the device's. */
static int ccc_publish(struct ccc_dev *dev)
{
	int err = 0;

	mutex_lock(&ccc_current_lock);
	if (rcu_dereference_protected(ccc_current,
				      lockdep_is_held(&ccc_current_lock)))
		err = -EBUSY;
	else
		rcu_assign_pointer(ccc_current, dev);
	mutex_unlock(&ccc_current_lock);
	if (err)
		dev_err(&dev->vdev->dev, "another device is in use already\n");
	return err;
}

static void ccc_unpublish(void)
{
	mutex_lock(&ccc_current_lock);
	RCU_INIT_POINTER(ccc_current, NULL);
	mutex_unlock(&ccc_current_lock);
}

static int ccc_dev_start(struct virtio_device *vdev)
{
	struct ccc_dev *dev = ccc_dev_alloc(vdev);
	int err;

	if (!dev)
		return -ENOMEM;
	err = ccc_read_config(dev);
	if (err)
		goto put;
	err = ccc_find_vqs(dev);
	if (err)
		goto put;
	err = ccc_alloc_messages(dev);
	if (err)
		goto del_vqs;
	/* The first chunk has the lines: without it there is no device. */
	if (!ccc_chunk_spare(dev)) {
		err = -ENOMEM;
		goto del_vqs;
	}
	err = ccc_publish(dev);
	if (err)
		goto del_vqs;

	virtio_device_ready(vdev);
	/* Before anybody else may use the queue. */
	ccc_events_offer(dev);
	WRITE_ONCE(dev->up, true);
	queue_delayed_work(ccc_wq, &dev->work, 0);
	flush_delayed_work(&dev->work);
	return 0;

del_vqs:
	vdev->config->del_vqs(vdev);
put:
	vdev->priv = NULL;
	ccc_dev_put(dev);
	return err;
}

static void ccc_detach_unused(struct virtqueue *vq)
{
	while (virtqueue_detach_unused_buf(vq))
		;
}

/*
 * Flows go on with their inner algorithm from their next ACK on; the tables
 * stay until the last of them has looked.
 */
static void ccc_dev_stop(struct virtio_device *vdev)
{
	struct ccc_dev *dev = vdev->priv;
	u32 i;

	/* After a resume that failed. */
	if (!dev)
		return;
	ccc_unpublish();
	spin_lock_bh(&dev->bell_lock);
	WRITE_ONCE(dev->up, false);
	spin_unlock_bh(&dev->bell_lock);
	synchronize_rcu();

	/* Nobody may use the queues of a device that is reset. */
	cancel_delayed_work_sync(&dev->work);
	virtio_reset_device(vdev);
	for (i = 0; i < dev->chunks; i++)
		ccc_chunk_withdraw(dev, dev->chunk[i]);
	ccc_detach_unused(dev->tableq);
	ccc_detach_unused(dev->doorbellq);
	ccc_detach_unused(dev->eventq);
	vdev->config->del_vqs(vdev);
	/* An interrupt on its way may have found the device up. */
	cancel_delayed_work_sync(&dev->work);
	vdev->priv = NULL;
	ccc_dev_put(dev);
}

static int ccc_validate(struct virtio_device *vdev)
{
	if (!virtio_has_feature(vdev, VIRTIO_F_VERSION_1)) {
		dev_err(&vdev->dev, "device is not VIRTIO 1\n");
		return -EINVAL;
	}
	/*
	 * Both sides use the tables all the time; they cannot be copied
	 * through a bounce buffer at every change.
	 */
	__virtio_clear_bit(vdev, VIRTIO_F_ACCESS_PLATFORM);
	return 0;
}

static int ccc_probe(struct virtio_device *vdev)
{
	return ccc_dev_start(vdev);
}

static void ccc_remove(struct virtio_device *vdev)
{
	ccc_dev_stop(vdev);
}

#ifdef CONFIG_PM_SLEEP
static int ccc_freeze(struct virtio_device *vdev)
{
	ccc_dev_stop(vdev);
	return 0;
}

static int ccc_restore(struct virtio_device *vdev)
{
	return ccc_dev_start(vdev);
}
#endif

static const struct virtio_device_id ccc_id_table[] = {
	{ VIRTIO_ID_CCC, VIRTIO_DEV_ANY_ID },
	{ 0 },
};
MODULE_DEVICE_TABLE(virtio, ccc_id_table);

static const unsigned int ccc_features[] = {
	VIRTIO_CCC_F_RATE_SHARE,
	VIRTIO_CCC_F_SLOT_CAP,
};

static struct virtio_driver ccc_driver = {
	.driver.name = KBUILD_MODNAME,
	.driver.owner = THIS_MODULE,
	.id_table = ccc_id_table,
	.feature_table = ccc_features,
	.feature_table_size = ARRAY_SIZE(ccc_features),
	.validate = ccc_validate,
	.probe = ccc_probe,
	.remove = ccc_remove,
#ifdef CONFIG_PM_SLEEP
	.freeze = ccc_freeze,
	.restore = ccc_restore,
#endif
};

int ccc_virtio_register(void)
{
	int err;

	ccc_wq = alloc_workqueue("ccc", WQ_UNBOUND, 0);
	if (!ccc_wq)
		return -ENOMEM;
	err = register_virtio_driver(&ccc_driver);
	if (err)
		destroy_workqueue(ccc_wq);
	return err;
}

void ccc_virtio_unregister(void)
{
	unregister_virtio_driver(&ccc_driver);
	destroy_workqueue(ccc_wq);
	/* Tables are freed by ccc_dev_free_rcu(), which is this module's. */
	rcu_barrier();
}
