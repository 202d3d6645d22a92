/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The virtio congestion control coupling device: from probe to detach.
 */
#include "ccc_driver.h"

static int ccc_slots_wanted = CCC_SLOTS_DEFAULT;
SYSCTL_NODE(_hw, OID_AUTO, ccc, CTLFLAG_RD | CTLFLAG_MPSAFE, NULL,
    "Congestion control coupling device");
SYSCTL_INT(_hw_ccc, OID_AUTO, slots, CTLFLAG_RDTUN, &ccc_slots_wanted, 0,
    "Slots offered to the device, 1 to 16384: flows that can be coupled");

struct virtio_ccc_softc {
	struct ccc_device *dev;
	/* Not the bus's, which takes them away after the device they read. */
	struct sysctl_ctx_list sysctls;
};

static struct virtio_feature_desc virtio_ccc_feature_desc[] = {
	{ 1ULL << VIRTIO_CCC_F_RATE_SHARE,	"RateShare" },
	{ 1ULL << VIRTIO_CCC_F_SLOT_CAP,	"SlotCap" },
	{ 0, NULL }
};

#define	CCC_FEATURES	(1ULL << VIRTIO_CCC_F_RATE_SHARE |		\
			 1ULL << VIRTIO_CCC_F_SLOT_CAP |		\
			 VIRTIO_F_VERSION_1 | VIRTIO_RING_F_EVENT_IDX)

VIRTIO_SIMPLE_PNPINFO(virtio_ccc, VIRTIO_ID_CCC,
    "VirtIO Congestion Control Coupling");

static int
virtio_ccc_probe(device_t bus)
{
	return (VIRTIO_SIMPLE_PROBE(bus, virtio_ccc));
}

static uint32_t
read_config32(device_t bus, size_t offset)
{
	/* The bus gives it in the machine's order already. */
	return (virtio_read_dev_config_4(bus, offset));
}

static int
negotiate(device_t bus, struct ccc_config *config)
{
	uint64_t features;

	virtio_set_feature_desc(bus, virtio_ccc_feature_desc);
	features = virtio_negotiate_features(bus, CCC_FEATURES);
	if ((features & VIRTIO_F_VERSION_1) == 0) {
		device_printf(bus, "unusable device: expected one of VIRTIO 1, "
		    "got a legacy one; have the hypervisor offer "
		    "VIRTIO_F_VERSION_1\n");
		return (ENXIO);
	}
	config->rate_share = virtio_with_feature(bus,
	    1ULL << VIRTIO_CCC_F_RATE_SHARE);
	config->slot_cap = virtio_with_feature(bus,
	    1ULL << VIRTIO_CCC_F_SLOT_CAP);
	return (virtio_finalize_features(bus));
}

static int
read_config(device_t bus, struct ccc_config *config)
{
	uint32_t revision, slots, lines, stale_us;

	revision = read_config32(bus,
	    offsetof(struct virtio_ccc_config, revision));
	slots = read_config32(bus,
	    offsetof(struct virtio_ccc_config, max_slots));
	lines = read_config32(bus,
	    offsetof(struct virtio_ccc_config, max_grant_lines));
	stale_us = read_config32(bus,
	    offsetof(struct virtio_ccc_config, stale_us));
	if (revision != VIRTIO_CCC_REVISION) {
		device_printf(bus, "unknown revision of the device: expected "
		    "%u, got %u; install the module of the host's release\n",
		    VIRTIO_CCC_REVISION, revision);
		return (ENXIO);
	}
	if (slots == 0 || lines == 0) {
		device_printf(bus, "invalid configuration of the device: "
		    "expected at least 1 slot and 1 grant line, got %u and %u; "
		    "see the host's log\n", slots, lines);
		return (ENXIO);
	}
	config->slots = min_t(uint32_t, slots, clamp_t(int, ccc_slots_wanted, 1,
	    CCC_SLOTS_MAX));
	config->grant_lines = min_t(uint32_t, lines, CCC_GRANT_LINES);
	config->stale_us = ccc_stale_us(stale_us);
	return (0);
}

/* In the network's epoch, as all interrupts of its kind. */
static void
intr(void *context)
{
	struct virtio_ccc_softc *sc = context;
	struct ccc_device *dev = (struct ccc_device *)atomic_load_acq_ptr(
	    (uintptr_t *)&sc->dev);

	if (dev != NULL)
		ccc_control_intr(dev);
}

static int
alloc_queues(struct ccc_device *dev)
{
	struct virtio_ccc_softc *sc = device_get_softc(dev->bus);
	struct vq_alloc_info info[VIRTIO_CCC_VQ_COUNT];
	const char *name = device_get_nameunit(dev->bus);
	int error;

	VQ_ALLOC_INFO_INIT(&info[VIRTIO_CCC_VQ_TABLE], 0, intr, sc,
	    &dev->control.table, "%s table", name);
	VQ_ALLOC_INFO_INIT(&info[VIRTIO_CCC_VQ_DOORBELL], 0, NULL, NULL,
	    &dev->doorbell.vq, "%s doorbell", name);
	VQ_ALLOC_INFO_INIT(&info[VIRTIO_CCC_VQ_EVENT], 0, intr, sc,
	    &dev->control.events, "%s event", name);
#if __FreeBSD_version >= 1500000
	error = virtio_alloc_virtqueues(dev->bus, nitems(info), info);
#else
	error = virtio_alloc_virtqueues(dev->bus, 0, nitems(info), info);
#endif
	if (error != 0)
		return (error);
	if (virtqueue_size(dev->control.table) < CCC_TABLE_PIECES) {
		device_printf(dev->bus, "expected a queue of %d or more for "
		    "tables, got %d: not used\n", CCC_TABLE_PIECES,
		    virtqueue_size(dev->control.table));
		return (ENXIO);
	}
	error = virtio_setup_intr(dev->bus, INTR_TYPE_NET | INTR_MPSAFE);
	if (error == 0)
		virtqueue_disable_intr(dev->doorbell.vq);
	return (error);
}

static int
state_sysctl(SYSCTL_HANDLER_ARGS)
{
	struct ccc_device *dev = arg1;
	const char *state = dev->slots.accepted ? "accepted" :
	    dev->control.refused ? "refused" :
	    dev->control.held ? "offered" : "none";

	if (dev->slots.accepted && ccc_device_is_stale(dev))
		state = "unanswered";
	return (SYSCTL_OUT(req, state, strlen(state) + 1));
}

#define	ADD_U32(name, where, text)					\
	SYSCTL_ADD_U32(context, list, OID_AUTO, name, CTLFLAG_RD, where, 0, text)
#define	ADD_U64(name, where, text)					\
	SYSCTL_ADD_U64(context, list, OID_AUTO, name, CTLFLAG_RD, where, 0, text)

static void
add_sysctls(struct virtio_ccc_softc *sc)
{
	struct ccc_device *dev = sc->dev;
	struct sysctl_ctx_list *context = &sc->sysctls;
	struct sysctl_oid_list *list =
	    SYSCTL_CHILDREN(device_get_sysctl_tree(dev->bus));

	sysctl_ctx_init(context);
	SYSCTL_ADD_PROC(context, list, OID_AUTO, "tables",
	    CTLTYPE_STRING | CTLFLAG_RD | CTLFLAG_MPSAFE, dev, 0, state_sysctl,
	    "A", "What the device says of the tables");
	ADD_U32("slots", &dev->config.slots, "Slots of the tables");
	ADD_U32("slots_used", &dev->slots.used, "Slots that flows hold");
	ADD_U64("messages", &dev->doorbell.stats.sent, "Messages sent");
	ADD_U64("full", &dev->doorbell.stats.full,
	    "Messages that found no room");
	ADD_U64("rescans", &dev->doorbell.stats.rescans,
	    "Looks at all slots asked for");
	ADD_U64("unanswered", &dev->doorbell.stats.stale,
	    "Times that the device ceased to answer");
	ADD_U64("resyncs", &dev->control.stats.resyncs, "Resync events");
	ADD_U64("policies", &dev->control.stats.policies, "Policy events");
	ADD_U64("releases", &dev->control.stats.releases, "Release events");
	ADD_U64("bad_events", &dev->control.stats.bad_events,
	    "Events that are none");
}

static int
init_parts(struct ccc_device *dev)
{
	int error;

	if ((error = read_config(dev->bus, &dev->config)) != 0 ||
	    (error = ccc_control_alloc(dev)) != 0 ||
	    (error = ccc_tables_alloc(dev)) != 0 ||
	    (error = ccc_slots_alloc(dev)) != 0 ||
	    (error = alloc_queues(dev)) != 0 ||
	    (error = ccc_doorbell_alloc(dev)) != 0)
		return (error);
	error = ccc_device_publish(dev);
	if (error != 0)
		device_printf(dev->bus, "too many devices: expected 1 in a "
		    "guest, got another; give the guest one only\n");
	return (error);
}

static int
virtio_ccc_attach(device_t bus)
{
	struct virtio_ccc_softc *sc = device_get_softc(bus);
	struct ccc_device *dev = ccc_device_alloc(bus);
	int error;

	error = negotiate(bus, &dev->config);
	if (error == 0)
		error = init_parts(dev);
	if (error != 0) {
		ccc_device_put(dev);
		return (error);
	}
	sc->dev = dev;
	add_sysctls(sc);
	return (0);
}

/* The bus says that the device may be used now. */
static int
virtio_ccc_attach_completed(device_t bus)
{
	struct virtio_ccc_softc *sc = device_get_softc(bus);

	ccc_doorbell_start(sc->dev);
	ccc_control_start(sc->dev);
	return (0);
}

/* Nobody may use the queues of a device that is reset. */
static void
stop(struct ccc_device *dev)
{
	ccc_doorbell_stop(dev);
	ccc_control_stop(dev);
	virtio_stop(dev->bus);
	ccc_control_reset(dev);
}

/*
 * Flows go on with their inner algorithm from their next ACK on; the tables
 * stay until the last of them has looked.
 */
static int
virtio_ccc_detach(device_t bus)
{
	struct virtio_ccc_softc *sc = device_get_softc(bus);
	struct ccc_device *dev = sc->dev;

	if (dev == NULL)
		return (0);
	sysctl_ctx_free(&sc->sysctls);
	ccc_device_unpublish(dev);
	stop(dev);
	sc->dev = NULL;
	/* An interrupt on its way may have found it. */
	NET_EPOCH_WAIT();
	taskqueue_drain_timeout(ccc_taskqueue, &dev->control.task);
	ccc_device_put(dev);
	return (0);
}

static int
virtio_ccc_suspend(device_t bus)
{
	struct virtio_ccc_softc *sc = device_get_softc(bus);

	stop(sc->dev);
	return (0);
}

static int
virtio_ccc_resume(device_t bus)
{
	struct virtio_ccc_softc *sc = device_get_softc(bus);
	int error;

	error = virtio_reinit(bus, CCC_FEATURES);
	if (error != 0)
		return (error);
	virtio_reinit_complete(bus);
	virtqueue_disable_intr(sc->dev->doorbell.vq);
	ccc_doorbell_start(sc->dev);
	ccc_control_start(sc->dev);
	return (0);
}

static device_method_t virtio_ccc_methods[] = {
	DEVMETHOD(device_probe,		virtio_ccc_probe),
	DEVMETHOD(device_attach,	virtio_ccc_attach),
	DEVMETHOD(device_detach,	virtio_ccc_detach),
	DEVMETHOD(device_suspend,	virtio_ccc_suspend),
	DEVMETHOD(device_resume,	virtio_ccc_resume),
	DEVMETHOD(virtio_attach_completed, virtio_ccc_attach_completed),
	DEVMETHOD_END
};

static driver_t virtio_ccc_driver = {
	"virtio_ccc",
	virtio_ccc_methods,
	sizeof(struct virtio_ccc_softc)
};

VIRTIO_DRIVER_MODULE(virtio_ccc, virtio_ccc_driver, NULL, NULL);
MODULE_VERSION(virtio_ccc, CCC_DEVICE_VERSION);
MODULE_DEPEND(virtio_ccc, virtio, 1, 1, 1);
