/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The congestion control "ccc": what TCP calls, and what is asked of TCP and of
 * the inner algorithm.
 */
#include "opt_inet.h"
#include "opt_inet6.h"
#include "ccc_flow.h"

#define	NEWRENO	"newreno"
#define	CUBIC	"cubic"

VNET_DEFINE_STATIC(bool, ccc_inner_is_cubic) = false;
#define	V_ccc_inner_is_cubic	VNET(ccc_inner_is_cubic)
#define	INNER_WANTED	(V_ccc_inner_is_cubic ? CUBIC : NEWRENO)
VNET_DEFINE_STATIC(u_int, ccc_priority_default) = 1;
#define	V_ccc_priority_default	VNET(ccc_priority_default)
static u_int report_shift = 3;
static int jails;

/* The connection's algorithm works on its own data, which is not ours. */
#define	WITH_INNER_DATA(ccv, flow, call) do {				\
	(ccv)->cc_data = (flow)->inner_data;				\
	call;								\
	(flow)->inner_data = (ccv)->cc_data;				\
	(ccv)->cc_data = (flow);					\
} while (0)

u_int
ccc_report_shift(void)
{
	return (report_shift);
}

const char *
ccc_inner_name(const struct ccc_flow *flow)
{
	return (flow->inner == NULL ? NEWRENO : flow->inner->name);
}

void
ccc_inner_ack(struct cc_var *ccv, struct ccc_flow *flow, ccc_ack_type_t type)
{
	if (flow->inner == NULL)
		newreno_cc_ack_received(ccv, type);
	else
		WITH_INNER_DATA(ccv, flow,
		    flow->inner->ack_received(ccv, type));
}

void
ccc_inner_signal(struct cc_var *ccv, struct ccc_flow *flow, ccc_signal_t type)
{
	if (flow->inner == NULL)
		newreno_cc_cong_signal(ccv, type);
	else
		WITH_INNER_DATA(ccv, flow, flow->inner->cong_signal(ccv, type));
}

void
ccc_inner_post_recovery(struct cc_var *ccv, struct ccc_flow *flow)
{
	if (flow->inner == NULL)
		newreno_cc_post_recovery(ccv);
	else
		WITH_INNER_DATA(ccv, flow, flow->inner->post_recovery(ccv));
}

void
ccc_inner_after_idle(struct cc_var *ccv, struct ccc_flow *flow)
{
	if (flow->inner == NULL)
		newreno_cc_after_idle(ccv);
	else
		WITH_INNER_DATA(ccv, flow, flow->inner->after_idle(ccv));
}

/* The registered algorithm of that name, held; NULL if there is none. */
static struct cc_algo *
inner_find(const char *name)
{
	struct cc_algo *algo;

	CC_LIST_RLOCK();
	STAILQ_FOREACH(algo, &cc_list, entries) {
		if (strncmp(algo->name, name, TCP_CA_NAME_MAX) == 0 &&
		    (algo->flags & CC_MODULE_BEING_REMOVED) == 0)
			break;
	}
	if (algo != NULL)
		cc_refer(algo);
	CC_LIST_RUNLOCK();
	return (algo);
}

static void
inner_drop(struct cc_algo *algo)
{
	CC_LIST_RLOCK();
	cc_release(algo);
	CC_LIST_RUNLOCK();
}

/* Without memory, or without the module, it is NewReno as all kernels have it. */
static void
inner_begin(struct cc_var *ccv, struct ccc_flow *flow)
{
	struct cc_algo *algo = inner_find(INNER_WANTED);

	if (algo == NULL)
		return;
	ccv->cc_data = NULL;
	if (algo->cb_init != NULL && algo->cb_init(ccv, NULL) != 0) {
		inner_drop(algo);
		return;
	}
	flow->inner_data = ccv->cc_data;
	flow->inner = algo;
}

static void
inner_end(struct cc_var *ccv, struct ccc_flow *flow)
{
	if (flow->inner == NULL)
		return;
	if (flow->inner->cb_destroy != NULL)
		WITH_INNER_DATA(ccv, flow, flow->inner->cb_destroy(ccv));
	inner_drop(flow->inner);
	flow->inner = NULL;
}

/* Bytes that the application has written and that are not acknowledged. */
uint32_t
ccc_tcp_queued(const struct tcpcb *tp)
{
	return (sbavail(&tptosocket(tp)->so_snd));
}

/* Not coupled: what stays in this machine, and jails with a network of their own. */
bool
ccc_tcp_in_scope(const struct tcpcb *tp)
{
	const struct inpcb *inp = tptoinpcb(tp);

	if (inp->inp_vnet != vnet0 && !jails)
		return (false);
#ifdef INET6
	if ((inp->inp_vflag & INP_IPV6) != 0)
		return (!in6_localip(
		    __DECONST(struct in6_addr *, &inp->in6p_faddr)));
#endif
	return (!in_localip(inp->inp_faddr));
}

void
ccc_tcp_addresses(const struct tcpcb *tp, struct virtio_ccc_report *report)
{
	const struct inpcb *inp = tptoinpcb(tp);

	report->sport = htole16(ntohs(inp->inp_lport));
	report->dport = htole16(ntohs(inp->inp_fport));
	memset(report->saddr, 0, sizeof(report->saddr));
	memset(report->daddr, 0, sizeof(report->daddr));
#ifdef INET6
	if ((inp->inp_vflag & INP_IPV6) != 0) {
		report->family = 6;
		memcpy(report->saddr, &inp->in6p_laddr, 16);
		memcpy(report->daddr, &inp->in6p_faddr, 16);
		return;
	}
#endif
	report->family = 4;
	memcpy(report->saddr, &inp->inp_laddr, 4);
	memcpy(report->daddr, &inp->inp_faddr, 4);
}

static size_t
ccc_data_sz(void)
{
	return (sizeof(struct ccc_flow));
}

static int
ccc_cb_init(struct cc_var *ccv, void *ptr)
{
	struct ccc_flow *flow = ptr;

	if (flow == NULL)
		flow = malloc(sizeof(*flow), M_CC_MEM, M_NOWAIT);
	if (flow == NULL)
		return (ENOMEM);
	memset(flow, 0, sizeof(*flow));
	flow->priority = ccc_priority(V_ccc_priority_default, 0);
	flow->changes = ccc_slot_changes() - 1;
	inner_begin(ccv, flow);
	ccv->cc_data = flow;
	return (0);
}

static void
ccc_cb_destroy(struct cc_var *ccv)
{
	struct ccc_flow *flow = ccv->cc_data;
	struct epoch_tracker et;

	CCC_EPOCH_ENTER(et);
	ccc_flow_detach(ccc_tcpcb(ccv), flow);
	CCC_EPOCH_EXIT(et);
	inner_end(ccv, flow);
	free(flow, M_CC_MEM);
	ccv->cc_data = NULL;
}

static void
ccc_conn_init(struct cc_var *ccv)
{
	struct ccc_flow *flow = ccv->cc_data;

	if (flow->inner != NULL && flow->inner->conn_init != NULL)
		WITH_INNER_DATA(ccv, flow, flow->inner->conn_init(ccv));
}

static void
ccc_ack_received(struct cc_var *ccv, ccc_ack_type_t type)
{
	struct epoch_tracker et;

	CCC_EPOCH_ENTER(et);
	ccc_flow_ack(ccv, ccv->cc_data, type);
	CCC_EPOCH_EXIT(et);
}

static void
ccc_cong_signal(struct cc_var *ccv, ccc_signal_t type)
{
	struct ccc_flow *flow = ccv->cc_data;
	struct epoch_tracker et;

	CCC_EPOCH_ENTER(et);
	if (ccc_flow_has_slot(ccc_tcpcb(ccv), flow))
		ccc_recovery_signal(ccv, flow, type);
	else
		ccc_recovery_signal_alone(ccv, flow, type);
	CCC_EPOCH_EXIT(et);
}

static void
ccc_post_recovery(struct cc_var *ccv)
{
	struct ccc_flow *flow = ccv->cc_data;
	struct epoch_tracker et;

	CCC_EPOCH_ENTER(et);
	if (ccc_flow_has_slot(ccc_tcpcb(ccv), flow))
		ccc_recovery_end(ccv, flow);
	else
		ccc_inner_post_recovery(ccv, flow);
	CCC_EPOCH_EXIT(et);
}

static void
ccc_after_idle(struct cc_var *ccv)
{
	struct epoch_tracker et;

	CCC_EPOCH_ENTER(et);
	ccc_flow_after_idle(ccv, ccv->cc_data);
	CCC_EPOCH_EXIT(et);
}

static void
ccc_ecnpkt_handler(struct cc_var *ccv)
{
	struct ccc_flow *flow = ccv->cc_data;

	if (flow->inner != NULL && flow->inner->ecnpkt_handler != NULL)
		WITH_INNER_DATA(ccv, flow, flow->inner->ecnpkt_handler(ccv));
}

static void
ccc_newround(struct cc_var *ccv, uint32_t round)
{
	struct ccc_flow *flow = ccv->cc_data;

	if (flow->inner != NULL && flow->inner->newround != NULL)
		WITH_INNER_DATA(ccv, flow, flow->inner->newround(ccv, round));
}

static void
ccc_rttsample(struct cc_var *ccv, uint32_t rtt_us, uint32_t retransmits,
    uint32_t in_flight)
{
	struct ccc_flow *flow = ccv->cc_data;

	if (flow->inner != NULL && flow->inner->rttsample != NULL)
		WITH_INNER_DATA(ccv, flow, flow->inner->rttsample(ccv, rtt_us,
		    retransmits, in_flight));
}

static bool
is_priority(u_int priority)
{
	return (priority >= 1 && priority <= VIRTIO_CCC_PRIORITY_MAX /
	    VIRTIO_CCC_PRIORITY_ONE);
}

/* TCP_CCALGOOPT: the flow's priority, an unsigned number from 1 to 10. */
static int
ccc_ctl_output(struct cc_var *ccv, struct sockopt *sopt, void *buffer)
{
	struct ccc_flow *flow = ccv->cc_data;
	u_int *priority = buffer;

	if (sopt->sopt_valsize != sizeof(*priority))
		return (EMSGSIZE);
	if (sopt->sopt_dir == SOPT_GET) {
		*priority = flow->priority / VIRTIO_CCC_PRIORITY_ONE;
		return (0);
	}
	if (!is_priority(*priority))
		return (EINVAL);
	/* It is in the next report. */
	flow->priority = ccc_priority(*priority, 0);
	return (0);
}

static struct cc_algo ccc_cc_algo = {
	.name = "ccc",
	.cc_data_sz = ccc_data_sz,
	.cb_init = ccc_cb_init,
	.cb_destroy = ccc_cb_destroy,
	.conn_init = ccc_conn_init,
	.ack_received = ccc_ack_received,
	.cong_signal = ccc_cong_signal,
	.post_recovery = ccc_post_recovery,
	.after_idle = ccc_after_idle,
	.ecnpkt_handler = ccc_ecnpkt_handler,
	.newround = ccc_newround,
	.rttsample = ccc_rttsample,
	.ctl_output = ccc_ctl_output,
};

static int
inner_sysctl(SYSCTL_HANDLER_ARGS)
{
	char name[TCP_CA_NAME_MAX];
	struct cc_algo *algo;
	int error;

	strlcpy(name, INNER_WANTED, sizeof(name));
	error = sysctl_handle_string(oidp, name, sizeof(name), req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (strcmp(name, NEWRENO) != 0 && strcmp(name, CUBIC) != 0)
		return (EINVAL);
	algo = inner_find(name);
	if (algo == NULL && strcmp(name, NEWRENO) != 0)
		return (ESRCH);
	if (algo != NULL)
		inner_drop(algo);
	V_ccc_inner_is_cubic = strcmp(name, CUBIC) == 0;
	return (0);
}

static int
priority_sysctl(SYSCTL_HANDLER_ARGS)
{
	u_int priority = V_ccc_priority_default;
	int error;

	error = sysctl_handle_int(oidp, &priority, 0, req);
	if (error != 0 || req->newptr == NULL)
		return (error);
	if (!is_priority(priority))
		return (EINVAL);
	V_ccc_priority_default = priority;
	return (0);
}

SYSCTL_DECL(_net_inet_tcp_cc_ccc);
SYSCTL_NODE(_net_inet_tcp_cc, OID_AUTO, ccc, CTLFLAG_RW | CTLFLAG_MPSAFE, NULL,
    "Congestion control coupling");
SYSCTL_PROC(_net_inet_tcp_cc_ccc, OID_AUTO, inner,
    CTLFLAG_VNET | CTLTYPE_STRING | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    inner_sysctl, "A", "Algorithm of new connections: newreno or cubic");
SYSCTL_PROC(_net_inet_tcp_cc_ccc, OID_AUTO, priority,
    CTLFLAG_VNET | CTLTYPE_UINT | CTLFLAG_RW | CTLFLAG_MPSAFE, NULL, 0,
    priority_sysctl, "IU", "Priority of new connections, 1 to 10");
SYSCTL_UINT(_net_inet_tcp_cc_ccc, OID_AUTO, report_shift, CTLFLAG_RW,
    &report_shift, 0, "A message each time that 1/2^n of a window is acknowledged");
SYSCTL_INT(_net_inet_tcp_cc_ccc, OID_AUTO, jails, CTLFLAG_RWTUN, &jails, 0,
    "Couple connections of jails with a network of their own too");

/*
 * A module that is asked to go while connections use it must stay as it is:
 * the kernel would let no connection choose it any more.
 */
static int
ccc_modevent(module_t mod, int event, void *algo)
{
	int error;

	if (event == MOD_QUIESCE &&
	    refcount_load(&ccc_cc_algo.cc_refcount) != 0)
		return (EBUSY);
	/* "kldunload -f" goes on after that, and cc_modevent() would panic. */
	if (event == MOD_UNLOAD)
		ccc_cc_algo.flags |= CC_MODULE_BEING_REMOVED;
	error = cc_modevent(mod, event, algo);
	if (event == MOD_UNLOAD && error != 0)
		ccc_cc_algo.flags &= ~CC_MODULE_BEING_REMOVED;
	return (error);
}

static moduledata_t ccc_moduledata = {
	.name = "ccc",
	.evhand = ccc_modevent,
	.priv = &ccc_cc_algo
};
DECLARE_MODULE(ccc, ccc_moduledata, SI_SUB_PROTO_IFATTACHDOMAIN, SI_ORDER_ANY);
MODULE_VERSION(ccc, 1);
MODULE_DEPEND(ccc, virtio_ccc, CCC_DEVICE_VERSION, CCC_DEVICE_VERSION,
    CCC_DEVICE_VERSION);
