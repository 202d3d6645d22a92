// SPDX-License-Identifier: GPL-2.0
/*
 * For tests: two algorithms that do not belong to the kernel, one of them
 * under a name that does.  They use all of a socket's private area.
 */
#include <linux/module.h>
#include <net/tcp.h>

static void rogue_init(struct sock *sk)
{
	memset(inet_csk_ca(sk), 0x5a, ICSK_CA_PRIV_SIZE);
}

#define ROGUE(algorithm) {				\
	.name		= algorithm,			\
	.owner		= THIS_MODULE,			\
	.init		= rogue_init,			\
	.ssthresh	= tcp_reno_ssthresh,		\
	.cong_avoid	= tcp_reno_cong_avoid,		\
	.undo_cwnd	= tcp_reno_undo_cwnd,		\
}

static struct tcp_congestion_ops rogue[] = { ROGUE("rogue"), ROGUE("westwood") };

static int __init rogue_module_init(void)
{
	int err = tcp_register_congestion_control(&rogue[0]);

	if (err)
		return err;
	err = tcp_register_congestion_control(&rogue[1]);
	if (err)
		tcp_unregister_congestion_control(&rogue[0]);
	return err;
}

static void __exit rogue_module_exit(void)
{
	tcp_unregister_congestion_control(&rogue[1]);
	tcp_unregister_congestion_control(&rogue[0]);
}

module_init(rogue_module_init);
module_exit(rogue_module_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Algorithms that the coupling must not take");
