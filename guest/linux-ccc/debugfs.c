// SPDX-License-Identifier: GPL-2.0
/*
 * What the device and every flow are doing, for people: in debugfs, without
 * any promise of a format.
 */
#include <linux/debugfs.h>

#include "flow.h"

static struct dentry *ccc_dir;

static const char *state_name(u8 state)
{
	static const char * const name[] = {
		[VIRTIO_CCC_STATE_FREE] = "free",
		[VIRTIO_CCC_STATE_SS] = "ss",
		[VIRTIO_CCC_STATE_CA] = "ca",
		[VIRTIO_CCC_STATE_FR] = "fr",
		[VIRTIO_CCC_STATE_LOSS] = "loss",
	};

	return state < ARRAY_SIZE(name) ? name[state] : "?";
}

static void show_addresses(struct seq_file *m,
			   const struct virtio_ccc_report *wire)
{
	const char *format = wire->family == 6 ? "%pI6c" : "%pI4";

	seq_printf(m, format, wire->saddr);
	seq_printf(m, ":%u ", le16_to_cpu(wire->sport));
	seq_printf(m, format, wire->daddr);
	seq_printf(m, ":%u ", le16_to_cpu(wire->dport));
}

/*
 * The flow goes on meanwhile: data_race() is at what it writes as it likes, since a
 * number of another moment, or of two, misleads nobody for long.
 */
static void show_flow(struct seq_file *m, const struct ccc_slot *slot)
{
	const struct virtio_ccc_report wire = data_race(*slot->report);
	const struct ccc_flow *flow = ccc_flow_of(slot);

	seq_printf(m, "%u ", slot->index);
	show_addresses(m, &wire);
	seq_printf(m, "%s cwnd %u granted_cwnd %u line %u epoch %u generation %u",
		   state_name(READ_ONCE(flow->report.state)),
		   le32_to_cpu(wire.cwnd_bytes) /
			max_t(u32, le16_to_cpu(wire.mss_bytes), 1),
		   data_race(flow->grant.cwnd), data_race(flow->grant.line),
		   data_race(flow->grant.epoch), READ_ONCE(slot->generation));
	seq_printf(m, " congestion_events %u timeouts %u spurious_events %u%s%s\n",
		   data_race(flow->recovery.congestion_events),
		   data_race(flow->recovery.timeouts),
		   data_race(flow->recovery.spurious_events),
		   READ_ONCE(flow->report.active) ? " active" : " idle",
		   READ_ONCE(flow->grant.coupled) ? " coupled" : " alone");
}

/* seq_file begins anew for each buffer it has filled, so no section is long. */
static void *flows_start(struct seq_file *m, loff_t *pos)
	__acquires(RCU)
{
	const struct ccc_device *dev;

	rcu_read_lock();
	dev = ccc_device_rcu();
	return dev ? ccc_slot_in_use(dev, pos) : NULL;
}

static void *flows_next(struct seq_file *m, void *v, loff_t *pos)
{
	const struct ccc_slot *slot = v;

	++*pos;
	return ccc_slot_in_use(slot->dev, pos);
}

static void flows_stop(struct seq_file *m, void *v)
	__releases(RCU)
{
	rcu_read_unlock();
}

static int flows_show(struct seq_file *m, void *v)
{
	const struct ccc_slot *slot = v;

	/* The flow has to leave it; the report may be of another offer. */
	if (ccc_flow_is_live(slot))
		show_flow(m, slot);
	return 0;
}

static const struct seq_operations flows_sops = {
	.start = flows_start,
	.next = flows_next,
	.stop = flows_stop,
	.show = flows_show,
};
DEFINE_SEQ_ATTRIBUTE(flows);

static void show_stats(struct seq_file *m, const struct ccc_device *dev)
{
	const typeof(dev->doorbell.stats) *bell = &dev->doorbell.stats;
	const typeof(dev->control.stats) *control = &dev->control.stats;

	seq_printf(m, "doorbells %llu kicks %llu full %llu rescans %llu stale %llu\n",
		   u64_stats_read(&bell->sent), u64_stats_read(&bell->kicks),
		   u64_stats_read(&bell->full), u64_stats_read(&bell->rescans),
		   u64_stats_read(&bell->stale));
	seq_printf(m, "resyncs %llu policies %llu releases %llu bad_events %llu\n",
		   u64_stats_read(&control->resyncs), u64_stats_read(&control->policies),
		   u64_stats_read(&control->releases), u64_stats_read(&control->bad_events));
}

static void show_device(struct seq_file *m, const struct ccc_device *dev)
{
	/* Pairs with ccc_slot_add_extent(). */
	u32 i, extents = smp_load_acquire(&dev->slots.extents);

	seq_printf(m, "inner %s instance %u %s\n", ccc_inner->name,
		   ccc_grant_instance(dev),
		   READ_ONCE(dev->doorbell.stale) ? "stale" : "answers");
	seq_printf(m, "max_slots %u grant_lines %u stale_us %u rate_share %d slot_cap %d\n",
		   dev->config.max_slots, dev->config.grant_lines,
		   dev->config.stale_us, dev->config.rate_share,
		   dev->config.slot_cap);
	for (i = 0; i < extents; i++) {
		const struct ccc_extent *extent = dev->slots.extent[i];

		seq_printf(m, "extent %u: slots %u used %u %s\n", i,
			   extent->slots, READ_ONCE(extent->use.count),
			   READ_ONCE(extent->use.accepted) ? "accepted" :
							     "not accepted");
	}
	show_stats(m, dev);
}

static int device_show(struct seq_file *m, void *unused)
{
	const struct ccc_device *dev;

	rcu_read_lock();
	dev = ccc_device_rcu();
	if (dev)
		show_device(m, dev);
	else
		seq_puts(m, "no device\n");
	rcu_read_unlock();
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(device);

void ccc_debugfs_create(void)
{
	ccc_dir = debugfs_create_dir("ccc", NULL);
	debugfs_create_file("device", 0444, ccc_dir, NULL, &device_fops);
	debugfs_create_file("flows", 0444, ccc_dir, NULL, &flows_fops);
}

void ccc_debugfs_remove(void)
{
	debugfs_remove(ccc_dir);
}
