/* SPDX-License-Identifier: GPL-2.0 */
/* What the filter at a tap tells whoever has loaded it. */
#ifndef CCC_BPF_TAP_H
#define CCC_BPF_TAP_H

/* Twice as many as a device has slots, of each tap: 1 MB. */
#define TAP_FLOWS	8192

enum {
	TAP_TCP,	/* with data */
	TAP_OTHER,	/* all else, an ACK without data too */
	TAP_KINDS,
};

/* In network order, as in a report's slot: of IPv4 the first 4 bytes. */
struct tap_flow {
	u8 saddr[16];
	u8 daddr[16];
	u16 sport;
	u16 dport;
	u16 family;	/* 4 or 6 */
	u16 reserved;
};

#endif /* CCC_BPF_TAP_H */
