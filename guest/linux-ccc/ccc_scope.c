// SPDX-License-Identifier: GPL-2.0
/*
 * Which flows are coupled: those that leave the machine by the bottleneck.
 *
 * A flow over the loopback device does not, nor does, as a rule, one between a
 * container and another.  Those would be held to the uplink's rate for nothing,
 * take part of its window, and have their addresses told to the host.
 */
#include <linux/moduleparam.h>
#include <linux/netdevice.h>
#include <net/dst.h>
#include <net/net_namespace.h>

#include "flow.h"

static char *devices = "";
module_param(devices, charp, 0444);
MODULE_PARM_DESC(devices, "network devices whose flows are coupled, separated by commas (default all but loopback)");

static bool containers;
module_param(containers, bool, 0644);
MODULE_PARM_DESC(containers, "couple flows of other network namespaces too (default no)");

static bool ccc_is_listed(const char *name)
{
	size_t length = strlen(name);
	const char *at = devices;

	if (!*at)
		return true;
	for (;;) {
		if (!strncmp(at, name, length) &&
		    (at[length] == ',' || !at[length]))
			return true;
		at = strchr(at, ',');
		if (!at)
			return false;
		at++;
	}
}

/* By the route that the flow has at present. */
bool ccc_in_scope(struct sock *sk)
{
	const struct net_device *dev;
	const struct dst_entry *dst;
	bool in = false;

	if (!net_eq(sock_net(sk), &init_net) && !READ_ONCE(containers))
		return false;
	rcu_read_lock();
	dst = __sk_dst_get(sk);
	if (dst) {
		dev = READ_ONCE(dst->dev);
		in = !(READ_ONCE(dev->flags) & IFF_LOOPBACK) &&
		     ccc_is_listed(dev->name);
	}
	rcu_read_unlock();
	return in;
}
