/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the tests in user space: what a flow's logic asks of its connection, of
 * its inner algorithm and of the clock.
 */
#include "../../ccc_flow.h"

uint64_t test_now_us;
bool test_inner_takes_pipe;
unsigned int test_inner_signals;
bool test_out_of_scope;

uint64_t
ccc_now_us(void)
{
	return (test_now_us);
}

/* NewReno, for what the inner algorithm does. */
void
ccc_inner_ack(struct cc_var *ccv, struct ccc_flow *inner, ccc_ack_type_t type)
{
	struct tcpcb *tp = ccv->tp;

	(void)inner;
	if (type != CC_ACK || IN_RECOVERY(tp->t_flags) ||
	    (ccv->flags & CCF_CWND_LIMITED) == 0)
		return;
	if (tp->snd_cwnd <= tp->snd_ssthresh) {
		tp->snd_cwnd += ccv->bytes_this_ack;
	} else if ((ccv->flags & CCF_ABC_SENTAWND) != 0) {
		ccv->flags &= ~CCF_ABC_SENTAWND;
		tp->snd_cwnd += tp->test_mss;
	}
	tp->snd_cwnd = min_t(uint32_t, tp->snd_cwnd,
	    TCP_MAXWIN << tp->snd_scale);
}

void
ccc_inner_signal(struct cc_var *ccv, struct ccc_flow *inner, ccc_signal_t type)
{
	struct tcpcb *tp = ccv->tp;
	uint32_t mss = tp->test_mss;
	/* As NewReno or as CUBIC: the window, or what is in flight. */
	uint32_t window = test_inner_takes_pipe ? tcp_compute_pipe(tp) :
	    tp->snd_cwnd;
	uint32_t half = max_t(uint32_t, window / 2 / mss, 2) * mss;

	(void)inner;
	test_inner_signals++;
	if (type == CC_NDUPACK) {
		tp->snd_ssthresh = half;
		ENTER_RECOVERY(tp->t_flags);
	} else if (type == CC_ECN) {
		tp->snd_ssthresh = tp->snd_cwnd = half;
		ENTER_CONGRECOVERY(tp->t_flags);
	} else if (type == CC_RTO) {
		tp->snd_ssthresh = half;
		tp->snd_cwnd = mss;
	}
}

int
tcp_compute_pipe(struct tcpcb *tp)
{
	return (tp->snd_max - tp->snd_una);
}

void
newreno_cc_post_recovery(struct cc_var *ccv)
{
	ccv->tp->snd_cwnd = ccv->tp->snd_ssthresh;
}

void
ccc_inner_post_recovery(struct cc_var *ccv, struct ccc_flow *inner)
{
	(void)inner;
	newreno_cc_post_recovery(ccv);
}

void
ccc_inner_after_idle(struct cc_var *ccv, struct ccc_flow *inner)
{
	(void)inner;
	ccv->tp->snd_cwnd = min_t(uint32_t, ccv->tp->snd_cwnd,
	    10 * ccv->tp->test_mss);
}

const char *
ccc_inner_name(const struct ccc_flow *inner)
{
	(void)inner;
	return ("newreno");
}

uint32_t
ccc_tcp_queued(const struct tcpcb *tp)
{
	return (tp->test_queued);
}

bool
ccc_tcp_in_scope(const struct tcpcb *tp)
{
	(void)tp;
	return (!test_out_of_scope);
}

void
ccc_tcp_addresses(const struct tcpcb *tp, struct virtio_ccc_report *report)
{
	report->family = 4;
	report->sport = htole16(tp->test_sport);
	report->dport = htole16(tp->test_dport);
	memcpy(report->saddr, &tp->test_saddr, 4);
	memcpy(report->daddr, &tp->test_daddr, 4);
}

u_int
ccc_report_shift(void)
{
	return (3);
}
