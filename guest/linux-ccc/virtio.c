// SPDX-License-Identifier: GPL-2.0
/*
 * The virtio congestion control coupling device: from probe to removal.
 */
#include <linux/device.h>
#include <linux/module.h>
#include <linux/virtio_config.h>

#include "device.h"

#define MAX_EXTENT_SLOTS	4096

static unsigned int slots = 256;
module_param(slots, uint, 0444);
MODULE_PARM_DESC(slots, "slots of one extent of the tables, 1 to 4096 (default 256)");

static int find_vqs(struct ccc_device *dev)
{
	struct virtqueue *vqs[VIRTIO_CCC_VQ_COUNT];
	int err;
#ifdef CCC_HAVE_VIRTQUEUE_INFO
	struct virtqueue_info info[VIRTIO_CCC_VQ_COUNT] = {
		[VIRTIO_CCC_VQ_TABLE] = { "table", ccc_control_callback },
		[VIRTIO_CCC_VQ_DOORBELL] = { "doorbell" },
		[VIRTIO_CCC_VQ_EVENT] = { "event", ccc_control_callback },
	};

	err = virtio_find_vqs(dev->vdev, VIRTIO_CCC_VQ_COUNT, vqs, info, NULL);
#else
	vq_callback_t *callbacks[VIRTIO_CCC_VQ_COUNT] = {
		[VIRTIO_CCC_VQ_TABLE] = ccc_control_callback,
		[VIRTIO_CCC_VQ_EVENT] = ccc_control_callback,
	};
	static const char * const names[VIRTIO_CCC_VQ_COUNT] = {
		"table", "doorbell", "event"
	};

	err = virtio_find_vqs(dev->vdev, VIRTIO_CCC_VQ_COUNT, vqs, callbacks,
			      names, NULL);
#endif
	if (err)
		return err;
	dev->vq.table = vqs[VIRTIO_CCC_VQ_TABLE];
	dev->vq.doorbell = vqs[VIRTIO_CCC_VQ_DOORBELL];
	dev->vq.event = vqs[VIRTIO_CCC_VQ_EVENT];
	virtqueue_disable_cb(dev->vq.doorbell);
	return 0;
}

static int read_config(struct ccc_device *dev)
{
	struct virtio_device *vdev = dev->vdev;
	struct ccc_config *config = &dev->config;
	u32 revision, stale_us;

	virtio_cread_le(vdev, struct virtio_ccc_config, revision, &revision);
	if (revision != VIRTIO_CCC_REVISION) {
		dev_err(&vdev->dev,
			"unknown revision of the device: expected %u, got %u; install the module of the host's release\n",
			VIRTIO_CCC_REVISION, revision);
		return -ENODEV;
	}
	virtio_cread_le(vdev, struct virtio_ccc_config, max_slots,
			&config->max_slots);
	virtio_cread_le(vdev, struct virtio_ccc_config, max_grant_lines,
			&config->grant_lines);
	virtio_cread_le(vdev, struct virtio_ccc_config, stale_us, &stale_us);
	config->stale_us = ccc_stale_us(stale_us);
	if (!config->max_slots || !config->grant_lines) {
		dev_err(&vdev->dev,
			"invalid configuration of the device: expected at least 1 slot and 1 grant line, got %u and %u; see the host's log\n",
			config->max_slots, config->grant_lines);
		return -ENODEV;
	}
	config->grant_lines = min_t(u32, config->grant_lines, CCC_GRANT_LINES);
	config->max_slots = min_t(u32, config->max_slots,
				  VIRTIO_CCC_EXTENTS_MAX * MAX_EXTENT_SLOTS);
	config->extent_slots = min(clamp_t(u32, slots, 1, MAX_EXTENT_SLOTS),
				   config->max_slots);
	config->rate_share = virtio_has_feature(vdev, VIRTIO_CCC_F_RATE_SHARE);
	config->slot_cap = virtio_has_feature(vdev, VIRTIO_CCC_F_SLOT_CAP);
	return 0;
}

static int init_parts(struct ccc_device *dev)
{
	return ccc_doorbell_init(dev) ?: ccc_control_init(dev) ?:
	       ccc_device_publish(dev);
}

static int ccc_probe(struct virtio_device *vdev)
{
	struct ccc_device *dev = ccc_device_alloc(vdev);
	int err;

	if (!dev)
		return -ENOMEM;
	vdev->priv = dev;
	err = read_config(dev);
	if (err)
		goto put;
	err = find_vqs(dev);
	if (err)
		goto put;
	err = init_parts(dev);
	if (err)
		goto del_vqs;

	virtio_device_ready(vdev);
	ccc_control_start(dev);
	ccc_doorbell_start(dev);
	queue_delayed_work(ccc_device_wq, &dev->control.work, 0);
	flush_delayed_work(&dev->control.work);
	return 0;

del_vqs:
	vdev->config->del_vqs(vdev);
put:
	vdev->priv = NULL;
	ccc_device_put(dev);
	return err;
}

static void detach_unused(struct virtqueue *vq)
{
	while (virtqueue_detach_unused_buf(vq))
		;
}

/*
 * Flows go on with their inner algorithm from their next ACK on; the tables
 * stay until the last of them has looked.
 */
static void ccc_remove(struct virtio_device *vdev)
{
	struct ccc_device *dev = vdev->priv;

	/* After a resume that failed. */
	if (!dev)
		return;
	ccc_device_unpublish();
	ccc_doorbell_stop(dev);

	/* Nobody may use the queues of a device that is reset. */
	cancel_delayed_work_sync(&dev->control.work);
	virtio_reset_device(vdev);
	ccc_control_stop(dev);
	detach_unused(dev->vq.table);
	detach_unused(dev->vq.doorbell);
	detach_unused(dev->vq.event);
	vdev->config->del_vqs(vdev);
	/* An interrupt on its way may have found the device up. */
	cancel_delayed_work_sync(&dev->control.work);
	vdev->priv = NULL;
	ccc_device_put(dev);
}

static int ccc_validate(struct virtio_device *vdev)
{
	if (!virtio_has_feature(vdev, VIRTIO_F_VERSION_1)) {
		dev_err(&vdev->dev,
			"unusable device: expected one of VIRTIO 1, got a legacy one; have the hypervisor offer VIRTIO_F_VERSION_1\n");
		return -EINVAL;
	}
	/*
	 * Both sides use the tables all the time; they cannot be copied
	 * through a bounce buffer at every change.
	 */
	__virtio_clear_bit(vdev, VIRTIO_F_ACCESS_PLATFORM);
	return 0;
}

#ifdef CONFIG_PM_SLEEP
static int ccc_freeze(struct virtio_device *vdev)
{
	ccc_remove(vdev);
	return 0;
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
	.restore = ccc_probe,
#endif
};

int ccc_virtio_register(void)
{
	return register_virtio_driver(&ccc_driver);
}

void ccc_virtio_unregister(void)
{
	unregister_virtio_driver(&ccc_driver);
}
