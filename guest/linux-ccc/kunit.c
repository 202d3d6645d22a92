// SPDX-License-Identifier: GPL-2.0
/*
 * KUnit: tests of the arithmetic, and of the loaded module through a socket
 * that uses it.
 */
#include <kunit/test.h>
#include <linux/inet_diag.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/prandom.h>
#include <linux/sockptr.h>
#include <net/tcp.h>

#include "common/tests/arithmetic.c"

static struct socket *coupled_socket(struct kunit *test)
{
	static char name[] = "ccc";
	struct socket *sock;
	int err;

	KUNIT_ASSERT_EQ(test, 0, sock_create_kern(&init_net, AF_INET,
						  SOCK_STREAM, IPPROTO_TCP,
						  &sock));
	err = sock->ops->setsockopt(sock, SOL_TCP, TCP_CONGESTION,
				    KERNEL_SOCKPTR(name), strlen(name));
	if (err) {
		sock_release(sock);
		kunit_skip(test, "ccc.ko is not loaded");
	}
	return sock;
}

/*
 * getsockopt(TCP_CC_INFO) and inet_diag take no lock: while a socket changes
 * to this algorithm they find here what the one before has left, and half of
 * BBR's part is what the application chose.
 */
static void f5_get_info_follows_nothing(struct kunit *test)
{
	struct socket *sock = coupled_socket(test);
	struct sock *sk = sock->sk;
	u8 *private = inet_csk_ca(sk);
	union tcp_cc_info info;
	struct rnd_state random;
	size_t size;
	int i, attr;

	prandom_seed_state(&random, 1);
	for (i = 0; i < 10000; i++) {
		if (i < 256)
			memset(private, i, ICSK_CA_PRIV_SIZE);
		else
			prandom_bytes_state(&random, private,
					    ICSK_CA_PRIV_SIZE);
		attr = 0;
		size = inet_csk(sk)->icsk_ca_ops->get_info(sk, ~0u, &attr,
							   &info);
		KUNIT_EXPECT_EQ(test, size, sizeof(info.bbr));
		KUNIT_EXPECT_EQ(test, attr, (int)INET_DIAG_BBRINFO);
	}
	memset(private, 0, ICSK_CA_PRIV_SIZE);
	sock_release(sock);
}

static struct kunit_case ccc_socket_cases[] = {
	KUNIT_CASE(f5_get_info_follows_nothing),
	{}
};

static struct kunit_suite ccc_socket_suite = {
	.name = "ccc_socket",
	.test_cases = ccc_socket_cases,
};
kunit_test_suite(ccc_socket_suite);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("KUnit tests of congestion control coupling");
