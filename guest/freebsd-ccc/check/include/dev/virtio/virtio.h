/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the compile check: what the driver calls of virtio(4), whose headers are
 * not among those of the C library.  A module that is installed is made with the
 * kernel's own.
 */
#ifndef CHECK_VIRTIO_H
#define CHECK_VIRTIO_H

#define	VIRTIO_F_VERSION_1		(1ULL << 32)
#define	VIRTIO_RING_F_EVENT_IDX		(1ULL << 29)

/* Instance variables of a child of the bus. */
#define	VIRTIO_IVAR_DEVTYPE		1
#define	VIRTIO_IVAR_FEATURE_DESC	2

struct vq_alloc_info;

struct virtio_feature_desc {
	uint64_t vfd_val;
	const char *vfd_str;
};

#define	VIRTIO_DRIVER_MODULE(name, driver, handler, argument)		\
	DRIVER_MODULE(name, virtio_mmio, driver, handler, argument);	\
	DRIVER_MODULE(name, virtio_pci, driver, handler, argument)

struct virtio_pnp_match {
	uint32_t device_type;
	const char *description;
};

#define	VIRTIO_SIMPLE_PNPINFO(driver, type, text)			\
	static const struct virtio_pnp_match driver##_match = {		\
		.device_type = type,					\
		.description = text,					\
	};								\
	MODULE_PNP_INFO("U32:device_type;D:#", virtio_mmio, driver,	\
	    &driver##_match, 1);					\
	MODULE_PNP_INFO("U32:device_type;D:#", virtio_pci, driver,	\
	    &driver##_match, 1)

#define	VIRTIO_SIMPLE_PROBE(dev, driver)				\
	check_virtio_probe(dev, &driver##_match)

void	virtio_read_ivar(device_t dev, int ivar, uintptr_t *value);
void	virtio_write_ivar(device_t dev, int ivar, uintptr_t value);
uint64_t virtio_negotiate_features(device_t dev, uint64_t features);
int	virtio_finalize_features(device_t dev);
bool	virtio_with_feature(device_t dev, uint64_t feature);
#if __FreeBSD_version >= 1500000
int	virtio_alloc_virtqueues(device_t dev, int count,
	    struct vq_alloc_info *info);
#else
int	virtio_alloc_virtqueues(device_t dev, int flags, int count,
	    struct vq_alloc_info *info);
#endif
int	virtio_setup_intr(device_t dev, enum intr_type type);
void	virtio_stop(device_t dev);
int	virtio_reinit(device_t dev, uint64_t features);
void	virtio_reinit_complete(device_t dev);
void	virtio_read_device_config(device_t dev, bus_size_t offset, void *value,
	    int length);

static inline int
check_virtio_probe(device_t dev, const struct virtio_pnp_match *match)
{
	uintptr_t type;

	virtio_read_ivar(dev, VIRTIO_IVAR_DEVTYPE, &type);
	if (type != match->device_type)
		return (ENXIO);
	device_set_desc(dev, match->description);
	return (BUS_PROBE_DEFAULT);
}

static inline void
virtio_set_feature_desc(device_t dev, void *desc)
{
	virtio_write_ivar(dev, VIRTIO_IVAR_FEATURE_DESC, (uintptr_t)desc);
}

static inline uint32_t
virtio_read_dev_config_4(device_t dev, bus_size_t offset)
{
	uint32_t value;

	virtio_read_device_config(dev, offset, &value, sizeof(value));
	return (value);
}

#endif /* CHECK_VIRTIO_H */
