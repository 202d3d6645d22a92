// SPDX-License-Identifier: GPL-2.0
/*
 * The inner algorithm.
 *
 * The kernel does not hand out the operations of a registered algorithm, but
 * a socket that uses it has them.  One unconnected kernel socket is kept for
 * the module's life; it also keeps the inner algorithm's module in place.
 */
#include <linux/bpf.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/sockptr.h>

#include "flow.h"

const struct tcp_congestion_ops *ccc_inner;
static struct socket *ccc_inner_socket;

/*
 * An algorithm does not say how much of a socket's private area it uses, and
 * the end of it is ours.  These are known to leave it alone.
 */
static const char * const ccc_inner_known[] = {
	"bic", "cdg", "cubic", "dctcp", "highspeed", "htcp", "hybla",
	"illinois", "lp", "nv", "reno", "scalable", "vegas", "veno",
	"westwood", "yeah",
};

/* As the kernel has it, and not another one under its name. */
static bool ccc_inner_in_tree(const struct tcp_congestion_ops *ops)
{
#ifdef BPF_MODULE_OWNER
	if (ops->owner == BPF_MODULE_OWNER)
		return false;
#endif
	return !ops->owner || !test_bit(TAINT_OOT_MODULE, &ops->owner->taints);
}

static int ccc_inner_check(const struct tcp_congestion_ops *ops,
			   const char *name)
{
	if (strcmp(ops->name, name)) {
		pr_err("ccc: inner algorithm %s is not available\n", name);
		return -EINVAL;
	}
	if (!ops->cong_avoid || ops->cong_control) {
		pr_err("ccc: inner algorithm %s is not window-based\n", name);
		return -EINVAL;
	}
	if (match_string(ccc_inner_known, ARRAY_SIZE(ccc_inner_known),
			 name) < 0 || !ccc_inner_in_tree(ops)) {
		pr_err("ccc: inner algorithm %s is not one of the kernel's own: it may need more than the %zu bytes of a socket that are left for it\n",
		       name, CCC_INNER_PRIV_SIZE);
		return -EINVAL;
	}
	return 0;
}

int ccc_inner_load(const char *name)
{
	int err;

	err = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP,
			       &ccc_inner_socket);
	if (err)
		return err;
	err = ccc_inner_socket->ops->setsockopt(ccc_inner_socket, SOL_TCP,
						TCP_CONGESTION,
						KERNEL_SOCKPTR((void *)name),
						strlen(name));
	if (err) {
		pr_err("ccc: inner algorithm %s is not available\n", name);
		err = -EINVAL;
		goto release;
	}
	ccc_inner = inet_csk(ccc_inner_socket->sk)->icsk_ca_ops;
	err = ccc_inner_check(ccc_inner, name);
	if (err)
		goto release;
	return 0;

release:
	sock_release(ccc_inner_socket);
	return err;
}

void ccc_inner_unload(void)
{
	sock_release(ccc_inner_socket);
}
