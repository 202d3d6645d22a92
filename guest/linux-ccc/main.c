// SPDX-License-Identifier: GPL-2.0
/*
 * Congestion control coupling for TCP.
 *
 * The flows of all virtual machines that send through one bottleneck share
 * one congestion window, which the host keeps.  This algorithm wraps another,
 * the inner one, and stands between it and the host:
 *
 * - What the inner algorithm would do is reported, not done: how far it would
 *   have opened the window for the data acknowledged, that it entered loss
 *   recovery or was told of congestion by ECN, that it had a timeout, that it
 *   found one of these spurious.  In congestion avoidance it works on a window
 *   of its own, see shadow.c.
 * - What the host grants is done: the flow's window is its part of the
 *   aggregate's, read at every ACK.  A smaller window is in force at once, a
 *   larger one is approached at the pace of slow start.  In recovery and
 *   after a timeout TCP's own machinery is left alone, and its target,
 *   snd_ssthresh, is the flow's new part.
 * - One loss event is one reduction, for all flows together.  A segment that
 *   was sent before the latest reduction says nothing about the present
 *   window, so every event carries the epoch in which its segment was sent.
 *
 * Messages to the host are asynchronous.  Nothing here waits for an answer:
 * where the new window is needed before it can have arrived, it is predicted,
 * and corrected at the next ACK.
 *
 * A flow takes a slot in the host's tables with its first data, not before:
 * pure receivers do not count.  Without a slot, without a device, or when the
 * device does not answer, a flow is exactly its inner algorithm.
 *
 * S. Islam, M. Welzl, K. Hiorth, D. Hayes, G. Armitage, S. Gjessing:
 * "ctrlTCP: Reducing Latency through Coupled, Heterogeneous Multi-Flow TCP
 * Congestion Control", IEEE INFOCOM Workshops, 2018.
 * M. Allman, V. Paxson, E. Blanton: "TCP Congestion Control", RFC 5681, 2009.
 */
#include <linux/module.h>

#include "flow.h"

static char *inner = "reno";
module_param(inner, charp, 0444);
MODULE_PARM_DESC(inner, "window-based algorithm to couple (default reno)");

static int __init ccc_module_init(void)
{
	int err;

	err = ccc_inner_load(inner);
	if (err)
		return err;
	err = ccc_device_init();
	if (err)
		goto unload_inner;
	ccc_control_reclaim = ccc_idle_reclaim;
	err = ccc_virtio_register();
	if (err)
		goto exit_device;
	err = ccc_tcp_register();
	if (err)
		goto unregister_virtio;
	ccc_debugfs_create();
	return 0;

unregister_virtio:
	ccc_virtio_unregister();
exit_device:
	ccc_device_exit();
unload_inner:
	ccc_inner_unload();
	return err;
}

static void __exit ccc_module_exit(void)
{
	ccc_debugfs_remove();
	ccc_tcp_unregister();
	ccc_ack_clock_exit();
	ccc_virtio_unregister();
	ccc_device_exit();
	ccc_inner_unload();
}

module_init(ccc_module_init);
module_exit(ccc_module_exit);

MODULE_AUTHOR("The CCC project");
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Congestion control coupling: virtio driver and TCP");
MODULE_VERSION("0.1");
MODULE_ALIAS("tcp_ccc");
