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
bool ccc_inner_adds_up;
bool ccc_inner_by_size;
static struct socket *inner_socket;

/*
 * An algorithm does not say how much of a socket's private area it uses, and
 * the end of it is ours.  These are known to leave it alone.
 */
static const char * const known[] = {
	"bic", "cdg", "cubic", "dctcp", "highspeed", "htcp", "hybla",
	"illinois", "lp", "nv", "reno", "scalable", "vegas", "veno",
	"westwood", "yeah",
};

/*
 * Those of them that grow by the packets of an ACK.  Others grow by the call, or by
 * what they were told before it, and have one for each ACK.
 */
static const char * const adding_up[] = {
	"bic", "cubic", "dctcp", "reno", "scalable", "vegas", "westwood",
};

static const char * const by_size[] = {
	"bic", "cubic", "highspeed", "scalable",
};

/* As the kernel has it, and not another one under its name. */
static bool is_in_tree(const struct tcp_congestion_ops *ops)
{
#ifdef BPF_MODULE_OWNER
	if (ops->owner == BPF_MODULE_OWNER)
		return false;
#endif
	return !ops->owner || !test_bit(TAINT_OOT_MODULE, &ops->owner->taints);
}

static int check(const struct tcp_congestion_ops *ops, const char *name)
{
	if (!ops->cong_avoid || ops->cong_control) {
		pr_err("ccc: inner=%s cannot be coupled: expected a window-based algorithm, got one with a control of its own; try reno or cubic\n",
		       name);
		return -EINVAL;
	}
	if (match_string(known, ARRAY_SIZE(known), name) < 0 ||
	    !is_in_tree(ops)) {
		pr_err("ccc: inner=%s cannot be coupled: expected one of the kernel's own, since at most %zu bytes of a socket are left for it; try reno or cubic\n",
		       name, CCC_INNER_PRIV_SIZE);
		return -EINVAL;
	}
	return 0;
}

int ccc_inner_load(const char *name)
{
	int err;

	err = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP,
			       &inner_socket);
	if (err)
		return err;
	err = inner_socket->ops->setsockopt(inner_socket, SOL_TCP,
					    TCP_CONGESTION,
					    KERNEL_SOCKPTR((void *)name),
					    strlen(name));
	ccc_inner = inet_csk(inner_socket->sk)->icsk_ca_ops;
	if (err || strcmp(ccc_inner->name, name)) {
		pr_err("ccc: inner=%s is not available: expected an algorithm of this kernel; load its module first\n",
		       name);
		err = -EINVAL;
	} else {
		err = check(ccc_inner, name);
	}
	ccc_inner_adds_up = match_string(adding_up, ARRAY_SIZE(adding_up),
					 name) >= 0;
	ccc_inner_by_size = match_string(by_size, ARRAY_SIZE(by_size), name) >= 0;
	if (err)
		sock_release(inner_socket);
	return err;
}

void ccc_inner_unload(void)
{
	sock_release(inner_socket);
}
