/* SPDX-License-Identifier: BSD-3-Clause */
/* For the compile check: what <sys/epoch.h> has of Concurrency Kit. */
#ifndef CHECK_CK_EPOCH_H
#define CHECK_CK_EPOCH_H

struct ck_epoch_section {
	unsigned int bucket;
};
typedef struct ck_epoch_section ck_epoch_section_t;

#endif /* CHECK_CK_EPOCH_H */
