/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Sockets of tenants get the coupled congestion control when they connect or are
 * accepted: the one whose inner algorithm is what they would have had.
 */
#ifndef CCC_BPF_CHOOSE_H
#define CCC_BPF_CHOOSE_H

#include "flow.h"

#define BPF_SOCK_OPS_TCP_CONNECT_CB		3
#define BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB	5

struct bpf_sock;

/* As in <linux/bpf.h>, as far as it is used. */
struct bpf_sock_ops {
	u32 op;
	u32 unused[45];
	struct bpf_sock *sk;
};

/* Not static: see wire_cubic. */
const char ccc_reno_name[16] = "ccc_reno", ccc_cubic_name[16] = "ccc_cubic";

SEC("sockops")
int ccc_choose(struct bpf_sock_ops *ctx)
{
	struct bpf_sock *sk = ctx->sk;
	struct tcp_sock *tp;
	char name[16] = {};
	u64 cgroup, cookie;

	if (!sk || (ctx->op != BPF_SOCK_OPS_TCP_CONNECT_CB &&
		    ctx->op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB))
		return 1;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 1;
	cgroup = (u64)BPF_CORE_READ((struct sock *)tp, sk_cgrp_data.cgroup);
	cookie = BPF_CORE_READ((struct sock *)tp, __sk_common.skc_net.net,
			       net_cookie);
	if (ccc_tenant_of(cgroup, cookie) < 0 ||
	    bpf_getsockopt(ctx, SOL_TCP, TCP_CONGESTION, name, sizeof(name)))
		return 1;
	/* ccc_reno or ccc_cubic, asked for by name, too. */
	if (!bpf_strncmp(name, 3, "ccc"))
		return 1;
	if (bpf_strncmp(name, sizeof(name), "reno") &&
	    !bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION,
			    (void *)ccc_cubic_name, sizeof(ccc_cubic_name)))
		return 1;
	bpf_setsockopt(ctx, SOL_TCP, TCP_CONGESTION, (void *)ccc_reno_name,
		       sizeof(ccc_reno_name));
	return 1;
}

#endif /* CCC_BPF_CHOOSE_H */
