// SPDX-License-Identifier: GPL-2.0
/*
 * What the device and every flow are doing, for people: in debugfs, without
 * any promise of a format.
 */
#include <linux/debugfs.h>

#include "flow.h"

static struct dentry *ccc_dir;

static const char *ccc_state_name(u8 state)
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

static void ccc_show_flow(struct seq_file *m, const struct ccc_slot *slot)
{
	const struct virtio_ccc_report *r = slot->report;
	const char *format = r->family == 6 ? "%pI6c" : "%pI4";

	seq_printf(m, "%u ", slot->index);
	seq_printf(m, format, r->saddr);
	seq_printf(m, ":%u ", le16_to_cpu(r->sport));
	seq_printf(m, format, r->daddr);
	seq_printf(m, ":%u %s", le16_to_cpu(r->dport),
		   ccc_state_name(READ_ONCE(slot->state)));
	seq_printf(m, " cwnd %u share %u line %u epoch %u generation %u",
		   le32_to_cpu(r->cwnd_bytes) /
			max_t(u32, le16_to_cpu(r->mss_bytes), 1),
		   READ_ONCE(slot->share), READ_ONCE(slot->view.line),
		   READ_ONCE(slot->view.epoch), READ_ONCE(slot->generation));
	seq_printf(m, " events %u timeouts %u undos %u%s%s\n",
		   READ_ONCE(slot->events), READ_ONCE(slot->timeouts),
		   READ_ONCE(slot->undos),
		   READ_ONCE(slot->active) ? " active" : " idle",
		   READ_ONCE(slot->coupled) ? " coupled" : " alone");
}

/* The slot in use at @pos or after it, which @pos is then of. */
static const struct ccc_slot *ccc_slot_from(const struct ccc_dev *dev,
					    loff_t *pos)
{
	u32 i, chunks = smp_load_acquire(&dev->chunks);	/* see control.c */
	loff_t first = 0;

	for (i = 0; i < chunks; i++) {
		const struct ccc_chunk *chunk = dev->chunk[i];
		unsigned long n = *pos > first ? *pos - first : 0;

		n = find_next_bit(chunk->map, chunk->slots, n);
		if (n < chunk->slots) {
			*pos = first + n;
			return &chunk->slot[n];
		}
		first += chunk->slots;
	}
	return NULL;
}

/* seq_file begins anew for each buffer it has filled, so no section is long. */
static void *flows_start(struct seq_file *m, loff_t *pos)
	__acquires(RCU)
{
	const struct ccc_dev *dev;

	rcu_read_lock();
	dev = ccc_dev_rcu();
	return dev ? (void *)ccc_slot_from(dev, pos) : NULL;
}

static void *flows_next(struct seq_file *m, void *v, loff_t *pos)
{
	const struct ccc_slot *slot = v;

	++*pos;
	return (void *)ccc_slot_from(slot->dev, pos);
}

static void flows_stop(struct seq_file *m, void *v)
	__releases(RCU)
{
	rcu_read_unlock();
}

static int flows_show(struct seq_file *m, void *v)
{
	const struct ccc_slot *slot = v;

	/* The flow has to leave it; the report may be another turn's. */
	if (ccc_slot_live(slot))
		ccc_show_flow(m, slot);
	return 0;
}

static const struct seq_operations flows_sops = {
	.start = flows_start,
	.next = flows_next,
	.stop = flows_stop,
	.show = flows_show,
};
DEFINE_SEQ_ATTRIBUTE(flows);

static void ccc_show_stats(struct seq_file *m, const struct ccc_stats *stats)
{
	seq_printf(m, "doorbells %llu kicks %llu full %llu rescans %llu\n",
		   READ_ONCE(stats->doorbells), READ_ONCE(stats->kicks), READ_ONCE(stats->full),
		   READ_ONCE(stats->rescans));
	seq_printf(m, "stale %llu resyncs %llu policies %llu releases %llu bad_events %llu\n",
		   READ_ONCE(stats->stale), READ_ONCE(stats->resyncs), READ_ONCE(stats->policies),
		   READ_ONCE(stats->releases), READ_ONCE(stats->bad_events));
}

static int device_show(struct seq_file *m, void *unused)
{
	const struct ccc_dev *dev;
	u32 i, chunks;

	rcu_read_lock();
	dev = ccc_dev_rcu();
	if (!dev) {
		seq_puts(m, "no device\n");
		goto unlock;
	}
	seq_printf(m, "inner %s instance %u %s\n", ccc_inner->name,
		   le32_to_cpu(READ_ONCE(dev->chunk[0]->head->instance)),
		   READ_ONCE(dev->stale) ? "stale" : "answers");
	seq_printf(m, "max_slots %u lines %u stale_us %u rate_share %d slot_cap %d\n",
		   dev->max_slots, dev->lines, dev->stale_us, dev->rate_share,
		   dev->slot_cap);
	chunks = smp_load_acquire(&dev->chunks);	/* see control.c */
	for (i = 0; i < chunks; i++)
		seq_printf(m, "chunk %u: slots %u used %u %s\n", i,
			   dev->chunk[i]->slots,
			   READ_ONCE(dev->chunk[i]->used),
			   READ_ONCE(dev->chunk[i]->live) ? "live" : "not live");
	ccc_show_stats(m, &dev->stats);
unlock:
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
