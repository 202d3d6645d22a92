// SPDX-License-Identifier: GPL-2.0
/*
 * Reno as the least BPF program that is one, to compare with.
 */
/* bpftool registers no member that the kernel does not have; our loader leaves it out. */
#define CCC_KERNEL_BEFORE_7_1
#include "bpf-ccc/bpf/kernel.h"

SEC("struct_ops/plain_ssthresh")
u32 BPF_PROG(plain_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

SEC("struct_ops/plain_cong_avoid")
void BPF_PROG(plain_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops/plain_undo_cwnd")
u32 BPF_PROG(plain_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops plain_reno = {
	.ssthresh	= (void *)plain_ssthresh,
	.cong_avoid	= (void *)plain_cong_avoid,
	.undo_cwnd	= (void *)plain_undo_cwnd,
	.flags		= TCP_CONG_NON_RESTRICTED,
	.name		= "plain_reno",
};

char LICENSE[] SEC("license") = "GPL";
