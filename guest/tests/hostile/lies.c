// SPDX-License-Identifier: GPL-2.0
/*
 * What is said of flows that are there, and whether they do as they are told.
 *
 * The module writes what is true into a flow's slot.  It is made false before
 * the device is told to look, and again after each write of which the device is
 * not told.
 */
#include <linux/moduleparam.h>

#include "lies.h"

static unsigned int lie_mss;
module_param(lie_mss, uint, 0444);
MODULE_PARM_DESC(lie_mss, "segment size, bytes (default 0: the true one)");

static unsigned int lie_rtt_us;
module_param(lie_rtt_us, uint, 0444);
MODULE_PARM_DESC(lie_rtt_us, "round-trip time (default 0: the true one)");

static unsigned int lie_min_rtt_us;
module_param(lie_min_rtt_us, uint, 0444);
MODULE_PARM_DESC(lie_min_rtt_us,
		 "least round-trip time, whatever the others are (default 0: the least of these)");

static unsigned int lie_acked = 1;
module_param(lie_acked, uint, 0444);
MODULE_PARM_DESC(lie_acked, "factor of what was acknowledged (default 1)");

static bool lie_slow_start;
module_param(lie_slow_start, bool, 0444);
MODULE_PARM_DESC(lie_slow_start, "always in slow start (default no)");

static bool lie_mute;
module_param(lie_mute, bool, 0444);
MODULE_PARM_DESC(lie_mute, "no loss is reported (default no)");

static bool lie_deaf;
module_param(lie_deaf, bool, 0444);
MODULE_PARM_DESC(lie_deaf, "grants are ignored (default no)");

static void lie_of_losses(struct virtio_ccc_report *wire)
{
	wire->congestion_events = 0;
	wire->timeouts = 0;
	wire->spurious_events = 0;
	if (wire->state == VIRTIO_CCC_STATE_FR ||
	    wire->state == VIRTIO_CCC_STATE_LOSS)
		wire->state = VIRTIO_CCC_STATE_CA;
}

static void lie_of_phase(struct virtio_ccc_report *wire)
{
	if (wire->state == VIRTIO_CCC_STATE_CA)
		wire->state = VIRTIO_CCC_STATE_SS;
	wire->ssthresh_bytes = cpu_to_le32(VIRTIO_CCC_SSTHRESH_UNSET);
}

static void lie_of_rtt(struct virtio_ccc_report *wire)
{
	u32 min_rtt_us = le32_to_cpu(wire->min_rtt_us);

	wire->srtt_us = cpu_to_le32(lie_rtt_us);
	wire->min_rtt_us = cpu_to_le32(min(min_rtt_us, lie_rtt_us));
	wire->rtt_sample = cpu_to_le16(ccc_rtt_sample(lie_rtt_us));
}

static void lie_of_acked(struct virtio_ccc_report *wire)
{
	wire->acked_limited_bytes =
		cpu_to_le64(le64_to_cpu(wire->acked_limited_bytes) * lie_acked);
	wire->delivered_bytes =
		cpu_to_le64(le64_to_cpu(wire->delivered_bytes) * lie_acked);
}

/* Of a report that is true, within its sequence count. */
void lies_of_wire(struct virtio_ccc_report *wire)
{
	if (lie_mute)
		lie_of_losses(wire);
	if (lie_slow_start)
		lie_of_phase(wire);
	if (lie_rtt_us)
		lie_of_rtt(wire);
	if (lie_min_rtt_us)
		wire->min_rtt_us = cpu_to_le32(lie_min_rtt_us);
	if (lie_mss)
		wire->mss_bytes = cpu_to_le16(min_t(u32, lie_mss, U16_MAX));
	if (lie_acked != 1)
		lie_of_acked(wire);
}

static void falsify(struct virtio_ccc_report *wire)
{
	lies_step_seq(wire);
	virt_wmb();	/* odd before the first change */
	lies_of_wire(wire);
	virt_wmb();	/* the last change before even */
	lies_step_seq(wire);
}

static struct ccc_slot *slot_of(struct ccc_device *dev, u32 index)
{
	u32 i;

	for (i = 0; i < dev->slots.extents; i++) {
		struct ccc_extent *extent = dev->slots.extent[i];

		if (index - extent->first < extent->slots)
			return &extent->slot[index - extent->first];
	}
	return NULL;
}

bool __wrap_ccc_doorbell_send(struct ccc_device *dev, u16 op, u32 slot,
			      u32 generation)
{
	if (op == VIRTIO_CCC_OP_REGISTER || op == VIRTIO_CCC_OP_UPDATE ||
	    op == VIRTIO_CCC_OP_LEAVE)
		falsify(slot_of(dev, slot)->report);
	return __real_ccc_doorbell_send(dev, op, slot, generation);
}

void __real_ccc_report_update(const struct sock *sk, struct ccc_flow *flow,
			      u8 ca_state);

/* If the device was told, this is said twice of what is acknowledged. */
void __wrap_ccc_report_update(const struct sock *sk, struct ccc_flow *flow,
			      u8 ca_state)
{
	u32 seq = le32_to_cpu(flow->slot->report->seq);

	__real_ccc_report_update(sk, flow, ca_state);
	if (le32_to_cpu(flow->slot->report->seq) == seq + 2)
		falsify(flow->slot->report);
}

void __real_ccc_report_resume(const struct sock *sk, struct ccc_flow *flow);

void __wrap_ccc_report_resume(const struct sock *sk, struct ccc_flow *flow)
{
	u32 seq = le32_to_cpu(flow->slot->report->seq);

	__real_ccc_report_resume(sk, flow);
	if (le32_to_cpu(flow->slot->report->seq) == seq + 2)
		falsify(flow->slot->report);
}

void __real_ccc_grant_refresh(const struct ccc_slot *slot,
			      struct ccc_grant *grant, u16 priority,
			      u32 srtt_us, u32 mss);

/* Who claims an RTT takes the window that is granted for it. */
void __wrap_ccc_grant_refresh(const struct ccc_slot *slot,
			      struct ccc_grant *grant, u16 priority,
			      u32 srtt_us, u32 mss)
{
	__real_ccc_grant_refresh(slot, grant, priority, lie_rtt_us ?: srtt_us,
				 mss);
	if (lie_deaf)
		WRITE_ONCE(grant->coupled, false);
}

int __real_ccc_tcp_register(void);

int __wrap_ccc_tcp_register(void)
{
	int err = __real_ccc_tcp_register();

	if (!err)
		empty_slots_start();
	return err;
}

void __real_ccc_tcp_unregister(void);

void __wrap_ccc_tcp_unregister(void)
{
	empty_slots_stop();
	__real_ccc_tcp_unregister();
}
