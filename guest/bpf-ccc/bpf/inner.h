/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The inner algorithm: the kernel's own Reno or CUBIC.
 */
#ifndef CCC_BPF_INNER_H
#define CCC_BPF_INNER_H

#include "flow.h"

/*
 * The loader says so: Linux 6.1 takes no address of a kernel function, by which
 * bpf_ksym_exists() tells.
 */
const volatile u8 ccc_has_cubic = 0;

/* So, too, whether the first data to leave is an operation, and no event of CUBIC's. */
const volatile u8 ccc_has_tx_start = 0;

static inline bool inner_is_cubic(const struct sock *sk)
{
	return ccc_has_cubic && ccc_sk(sk)->cubic;
}

static inline u32 inner_ssthresh(struct sock *sk)
{
	if (inner_is_cubic(sk))
		return cubictcp_recalc_ssthresh(sk);
	return tcp_reno_ssthresh(sk);
}

static inline void inner_cong_avoid(struct sock *sk, u32 ack, u32 acked)
{
	if (inner_is_cubic(sk))
		cubictcp_cong_avoid(sk, ack, acked);
	else
		tcp_reno_cong_avoid(sk, ack, acked);
}

static inline void inner_set_state(struct sock *sk, u8 state)
{
	if (inner_is_cubic(sk))
		cubictcp_state(sk, state);
}

#endif /* CCC_BPF_INNER_H */
