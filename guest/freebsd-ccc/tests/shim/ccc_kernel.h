/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the tests in user space: as much of cc(9), of a connection and of the
 * kernel as a flow's logic sees.  Of each name the meaning is the kernel's.
 */
#ifndef CCC_KERNEL_H
#define CCC_KERNEL_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef unsigned int u_int;
typedef uint32_t tcp_seq;

#define	CC_ACK		0x0001
#define	CC_DUPACK	0x0002
#define	CC_ECN		0x0100
#define	CC_RTO		0x0200
#define	CC_RTO_ERR	0x0400
#define	CC_NDUPACK	0x0800
#define	CCF_ABC_SENTAWND 0x0001
#define	CCF_CWND_LIMITED 0x0002
#define	TF_SENTFIN	0x0010
#define	TF_FASTRECOVERY	0x00100000
#define	TF_CONGRECOVERY	0x20000000
#define	TCP_MAXWIN	65535
#define	TCP_MAX_WINSHIFT 14
#define	TCP_RTT_SHIFT	5
#define	TCP_CA_NAME_MAX	16

#define	IN_FASTRECOVERY(flags)	((flags) & TF_FASTRECOVERY)
#define	IN_CONGRECOVERY(flags)	((flags) & TF_CONGRECOVERY)
#define	IN_RECOVERY(flags)	((flags) & (TF_FASTRECOVERY | TF_CONGRECOVERY))
#define	ENTER_CONGRECOVERY(flags) ((flags) |= TF_CONGRECOVERY)
#define	ENTER_RECOVERY(flags)	((flags) |= TF_FASTRECOVERY | TF_CONGRECOVERY)
#define	EXIT_RECOVERY(flags)	((flags) &= ~(TF_FASTRECOVERY | TF_CONGRECOVERY))
#define	SEQ_GT(a, b)	((int32_t)((a) - (b)) > 0)
#define	SEQ_GEQ(a, b)	((int32_t)((a) - (b)) >= 0)
#define	SEQ_LEQ(a, b)	((int32_t)((a) - (b)) <= 0)

struct tcpcb;

struct cc_var {
	void *cc_data;
	int bytes_this_ack;
	tcp_seq curack;
	uint32_t flags;
	struct tcpcb *tp;
};

struct cc_algo {
	char name[TCP_CA_NAME_MAX];
};

struct tcpcb {
	struct cc_var t_ccv;
	u_int t_flags;
	int t_srtt;
	uint32_t snd_cwnd, snd_ssthresh, snd_wnd;
	tcp_seq snd_una, snd_max, snd_nxt;
	uint8_t snd_scale;
	uint32_t test_queued;
	uint32_t test_mss;
	uint32_t test_saddr, test_daddr;	/* as in a packet */
	uint16_t test_sport, test_dport;
};

typedef uint16_t ccc_ack_type_t;
typedef uint32_t ccc_signal_t;
#define	ccc_tcpcb(ccv)	((ccv)->tp)

#define	tcp_fixed_maxseg(tp)	((tp)->test_mss)
#define	tick			1000

#define	atomic_load_16(p)	(*(const volatile uint16_t *)(p))
#define	atomic_load_32(p)	(*(const volatile uint32_t *)(p))
#define	atomic_load_64(p)	(*(const volatile uint64_t *)(p))
#define	atomic_store_32(p, v)	(*(volatile uint32_t *)(p) = (v))
#define	atomic_thread_fence_acq() __atomic_thread_fence(__ATOMIC_ACQUIRE)
#define	atomic_thread_fence_rel() __atomic_thread_fence(__ATOMIC_RELEASE)
#define	cpu_spinwait()		((void)0)

/* What the clock says. */
extern uint64_t test_now_us;
/* The inner algorithm reduces by what is in flight, and how often it was told to. */
extern bool test_inner_takes_pipe;
extern unsigned int test_inner_signals;
/* Connections stay in the machine. */
extern bool test_out_of_scope;

uint64_t ccc_now_us(void);
int	tcp_compute_pipe(struct tcpcb *tp);
void	newreno_cc_post_recovery(struct cc_var *ccv);

#endif /* CCC_KERNEL_H */
