// SPDX-License-Identifier: GPL-2.0
/*
 * Slots that say of flows that there are, and are not; and what the device has
 * to bear beside them.  Some of it is said anew each period.
 */
#include <linux/device.h>
#include <linux/moduleparam.h>

#include "lies.h"

#define MOST_SLOTS	4096u
#define ADDRESS		0x0100007f

static unsigned int lie_slots;
module_param(lie_slots, uint, 0444);
MODULE_PARM_DESC(lie_slots, "slots without a flow that are active, 0 to 4096 (default 0)");

static unsigned int lie_ms = 100;
module_param(lie_ms, uint, 0444);
MODULE_PARM_DESC(lie_ms, "period of what follows, 1 or more (default 100)");

static bool lie_loss;
module_param(lie_loss, bool, 0444);
MODULE_PARM_DESC(lie_loss, "a congestion event in each period (default no)");

static unsigned int lie_beta = 32768;
module_param(lie_beta, uint, 0444);
MODULE_PARM_DESC(lie_beta, "window factor of these events, of 65536 (default 32768)");

static bool lie_undo;
module_param(lie_undo, bool, 0444);
MODULE_PARM_DESC(lie_undo, "each event is undone a period later (default no)");

static unsigned int lie_growth_bytes;
module_param(lie_growth_bytes, uint, 0444);
MODULE_PARM_DESC(lie_growth_bytes, "growth in each period (default 0)");

static unsigned int lie_inflight_bytes;
module_param(lie_inflight_bytes, uint, 0444);
MODULE_PARM_DESC(lie_inflight_bytes, "what each slot says it has in flight (default 0)");

static unsigned int lie_priority = 1;
module_param(lie_priority, uint, 0444);
MODULE_PARM_DESC(lie_priority, "priority of the slots, of 256 (default 1)");

static bool lie_return;
module_param(lie_return, bool, 0444);
MODULE_PARM_DESC(lie_return, "the slots are idle in every other period (default no)");

static bool lie_limited;
module_param(lie_limited, bool, 0444);
MODULE_PARM_DESC(lie_limited, "the slots' applications limit them (default no)");

static bool lie_reset;
module_param(lie_reset, bool, 0444);
MODULE_PARM_DESC(lie_reset, "the device is reset in each period (default no)");

static bool lie_release;
module_param(lie_release, bool, 0444);
MODULE_PARM_DESC(lie_release, "the first extent is released in each period (default no)");

static struct ccc_slot *slots[MOST_SLOTS];
static unsigned int taken;
static unsigned int period;
static u16 congestion_events;
static u16 spurious_events;
static u64 growth_bytes;
static struct delayed_work work;

static u32 present_epoch(const struct ccc_slot *slot)
{
	const struct virtio_ccc_grant_line *line = slot->dev->slots.extent[0]->line;
	u16 n = le16_to_cpu(READ_ONCE(slot->grant->line));

	return le32_to_cpu(READ_ONCE(line[n % CCC_GRANT_LINES].epoch));
}

static void write_cold(struct virtio_ccc_report *wire,
		       const struct ccc_slot *slot)
{
	wire->generation = cpu_to_le32(slot->generation);
	wire->family = 4;
	wire->sport = cpu_to_le16(1024 + slot->index);
	wire->dport = cpu_to_le16(9);
	*(__le32 *)wire->saddr = cpu_to_le32(ADDRESS);
	*(__le32 *)wire->daddr = cpu_to_le32(ADDRESS);
	strscpy(wire->algorithm, "reno", sizeof(wire->algorithm));
}

/* Only the first slot has events: one is as good as many. */
static void write_events(struct virtio_ccc_report *wire,
			 const struct ccc_slot *slot)
{
	wire->congestion_events = cpu_to_le16(congestion_events);
	wire->spurious_events = cpu_to_le16(spurious_events);
	wire->beta = cpu_to_le16(min_t(u32, lie_beta, U16_MAX));
	wire->congestion_epoch = cpu_to_le32(present_epoch(slot));
	/* Nobody grows by more than was acknowledged. */
	wire->acked_limited_bytes = cpu_to_le64(growth_bytes);
	wire->delivered_bytes = cpu_to_le64(growth_bytes);
	wire->cwnd_growth_bytes = cpu_to_le32((u32)growth_bytes);
}

static void write_hot(struct virtio_ccc_report *wire, bool active)
{
	wire->state = VIRTIO_CCC_STATE_CA;
	wire->flags = (lie_limited ? 0 : VIRTIO_CCC_R_CWND_LIMITED) |
		      (active ? VIRTIO_CCC_R_ACTIVE : 0);
	wire->priority = cpu_to_le16(clamp(lie_priority, 1u,
					   (u32)VIRTIO_CCC_PRIORITY_MAX));
	wire->cwnd_bytes = cpu_to_le32(max(lie_inflight_bytes, 14480u));
	wire->inflight_bytes = cpu_to_le32(lie_inflight_bytes);
	wire->ssthresh_bytes = cpu_to_le32(VIRTIO_CCC_SSTHRESH_UNSET);
	wire->srtt_us = cpu_to_le32(100000);
	wire->min_rtt_us = cpu_to_le32(100000);
	wire->mss_bytes = cpu_to_le16(1448);
}

/* What is false of flows is said of these too. */
static void write_slot(struct ccc_slot *slot, u16 op, bool active)
{
	struct virtio_ccc_report *wire = slot->report;

	lies_step_seq(wire);
	virt_wmb();	/* odd before the first change */
	if (op == VIRTIO_CCC_OP_REGISTER)
		write_cold(wire, slot);
	write_hot(wire, active);
	lies_of_wire(wire);
	if (slot == slots[0])
		write_events(wire, slot);
	virt_wmb();	/* the last change before even */
	lies_step_seq(wire);
}

static void tell(struct ccc_slot *slot, u16 op)
{
	__real_ccc_doorbell_send(slot->dev, op, slot->index, slot->generation);
}

static void drop_all(void)
{
	while (taken)
		ccc_slot_drop(slots[--taken]);
}

/* As many as are asked for, or as there are so far. */
static void take_more(void)
{
	while (taken < min(lie_slots, MOST_SLOTS)) {
		struct ccc_slot *slot = ccc_slot_take(NULL);

		if (!slot)
			return;
		slots[taken++] = slot;
		write_slot(slot, VIRTIO_CCC_OP_REGISTER, true);
		tell(slot, VIRTIO_CCC_OP_REGISTER);
	}
}

static void next_period(void)
{
	period++;
	if (lie_undo && period & 1)
		spurious_events = congestion_events;
	else if (lie_loss)
		congestion_events++;
	growth_bytes += lie_growth_bytes;
}

/* Of many slots at once, which would count as idle if nothing were heard. */
static void tell_anew(void)
{
	bool active = !lie_return || period & 1;
	unsigned int i;

	for (i = 0; i < taken; i++)
		write_slot(slots[i], VIRTIO_CCC_OP_UPDATE, active);
	if (taken)
		tell(slots[0], taken == 1 ? VIRTIO_CCC_OP_UPDATE :
					    VIRTIO_CCC_OP_RESCAN);
}

/* Called without the RCU section: the driver sleeps. */
static void reset_device(void)
{
	struct device *device = NULL;
	struct ccc_device *dev;

	rcu_read_lock();
	dev = ccc_device_rcu();
	if (dev)
		device = get_device(&dev->vdev->dev);
	rcu_read_unlock();
	if (!device)
		return;
	if (device_reprobe(device))
		pr_err("ccc: the device does not come back after a reset\n");
	put_device(device);
}

static void release_extent(void)
{
	struct ccc_device *dev = ccc_device_rcu();

	if (dev)
		__real_ccc_doorbell_send(dev, VIRTIO_CCC_OP_RELEASE, 0, 0);
}

static void lie(struct work_struct *unused)
{
	next_period();
	rcu_read_lock();
	if (taken && !ccc_flow_is_live(slots[0]))
		drop_all();
	tell_anew();
	take_more();
	if (lie_release)
		release_extent();
	rcu_read_unlock();
	if (lie_reset)
		reset_device();
	schedule_delayed_work(&work, msecs_to_jiffies(max(lie_ms, 1u)));
}

void empty_slots_start(void)
{
	INIT_DELAYED_WORK(&work, lie);
	if (lie_slots || lie_reset || lie_release)
		schedule_delayed_work(&work, msecs_to_jiffies(lie_ms));
}

void empty_slots_stop(void)
{
	cancel_delayed_work_sync(&work);
	drop_all();
}
