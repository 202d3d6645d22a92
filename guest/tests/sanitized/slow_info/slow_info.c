// SPDX-License-Identifier: GPL-2.0
/*
 * For tests: whoever reads what `ccc` says of a socket is interrupted for a
 * while, after he has found out whose words to read and before he reads them.
 * Nothing forbids that: getsockopt(TCP_CC_INFO) takes neither the socket's lock
 * nor RCU's.  Without this it is a matter of luck.
 */
#include <linux/delay.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/sockptr.h>
#include <net/tcp.h>

#define INTERRUPTION_US	500

static struct socket *slow_socket;
static struct tcp_congestion_ops *slow_ops;
static size_t (*quick_info)(struct sock *sk, u32 ext, int *attr,
			    union tcp_cc_info *info);

static size_t slow_info(struct sock *sk, u32 ext, int *attr,
			union tcp_cc_info *info)
{
	if (!in_softirq())
		udelay(INTERRUPTION_US);
	return quick_info(sk, ext, attr, info);
}

static int __init slow_init(void)
{
	int err = sock_create_kern(&init_net, AF_INET, SOCK_STREAM, IPPROTO_TCP,
				   &slow_socket);

	if (err)
		return err;
	err = slow_socket->ops->setsockopt(slow_socket, SOL_TCP, TCP_CONGESTION,
					   KERNEL_SOCKPTR("ccc"), 3);
	if (err) {
		sock_release(slow_socket);
		return err;
	}
	/* Not constant: the module itself fills it in. */
	slow_ops = (void *)inet_csk(slow_socket->sk)->icsk_ca_ops;
	quick_info = slow_ops->get_info;
	WRITE_ONCE(slow_ops->get_info, slow_info);
	return 0;
}
module_init(slow_init);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Interrupts those who read what ccc says of a socket");
