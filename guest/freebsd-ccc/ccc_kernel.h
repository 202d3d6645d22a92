/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the modules need of the kernel, and the calls that differ between its
 * versions.  The tests in user space have another file of this name.
 */
#ifndef CCC_KERNEL_H
#define CCC_KERNEL_H

#include <sys/param.h>
#include <sys/systm.h>
#include <sys/endian.h>
#include <sys/epoch.h>
#include <sys/kernel.h>
#include <sys/lock.h>
#include <sys/malloc.h>
#include <sys/module.h>
#include <sys/mutex.h>
#include <sys/rwlock.h>
#include <sys/socket.h>
#include <sys/socketvar.h>
#include <sys/sysctl.h>
#include <sys/time.h>
#include <machine/atomic.h>
#include <machine/cpu.h>

#include <net/if.h>
#include <net/vnet.h>

#include <netinet/in.h>
#include <netinet/in_pcb.h>
#include <netinet/tcp.h>
#include <netinet/tcp_seq.h>
#include <netinet/tcp_var.h>
#include <netinet/cc/cc.h>
#include <netinet/cc/cc_module.h>

#if __FreeBSD_version >= 1500000
typedef ccsignal_t ccc_ack_type_t;
typedef ccsignal_t ccc_signal_t;
#define	ccc_tcpcb(ccv)	((ccv)->tp)
#else
typedef uint16_t ccc_ack_type_t;
typedef uint32_t ccc_signal_t;
#define	ccc_tcpcb(ccv)	((ccv)->ccvc.tcp)
#endif

/* Where a slot may be written: after NET_EPOCH_WAIT() nobody still does. */
#define	CCC_EPOCH_ENTER(et)	NET_EPOCH_ENTER(et)
#define	CCC_EPOCH_EXIT(et)	NET_EPOCH_EXIT(et)

static inline uint64_t
ccc_now_us(void)
{
	return (sbttous(sbinuptime()));
}

#endif /* CCC_KERNEL_H */
