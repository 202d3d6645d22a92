/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
/*
 * Preloaded into every program of a laboratory run: getrandom() yields a
 * sequence that depends on CCC_LAB_SEED alone, so that the guest kernels hash,
 * pick ports and choose sequence numbers alike in every run of one seed.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>

static uint64_t state;
static int seeded;

/* FNV-1a: the seed is any string, by default "SEED:NAME". */
static uint64_t hash(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}

/* splitmix64 */
static uint64_t next(void)
{
	uint64_t z = (state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

ssize_t getrandom(void *buf, size_t len, unsigned int flags)
{
	unsigned char *p = buf;

	(void)flags;
	if (!seeded) {
		const char *seed = getenv("CCC_LAB_SEED");

		state = hash(seed ? seed : "");
		seeded = 1;
	}
	for (size_t done = 0; done < len; done += sizeof(uint64_t)) {
		uint64_t word = next();
		size_t left = len - done;

		memcpy(p + done, &word, left < sizeof(word) ? left : sizeof(word));
	}
	return (ssize_t)len;
}
