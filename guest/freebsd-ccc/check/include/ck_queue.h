/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * For the compile check: the layout of Concurrency Kit's queues, which is that
 * of <sys/queue.h>.
 */
#ifndef CHECK_CK_QUEUE_H
#define CHECK_CK_QUEUE_H

#include <sys/queue.h>

#define	CK_LIST_HEAD	LIST_HEAD
#define	CK_LIST_ENTRY	LIST_ENTRY
#define	CK_SLIST_HEAD	SLIST_HEAD
#define	CK_SLIST_ENTRY	SLIST_ENTRY
#define	CK_STAILQ_HEAD	STAILQ_HEAD
#define	CK_STAILQ_ENTRY	STAILQ_ENTRY

#endif /* CHECK_CK_QUEUE_H */
