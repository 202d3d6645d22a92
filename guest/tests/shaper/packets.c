// SPDX-License-Identifier: GPL-2.0
/*
 * packets listen: binds the port, and reads nothing.
 * packets send N: sends so many datagrams, and prints the nanoseconds of each.
 * packets spare N MS: the same at the begin of a time, and prints how often a loop
 * went round that has what of the processor nothing else wants in that time, and the
 * time's nanoseconds.  What waits in a queue takes the processor later, and idle time
 * is no instruction: those that the loop has not had are what all of it took.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 5000
#define BYTES 1400

static const struct sockaddr_in sink = {
	.sin_family = AF_INET, .sin_port = __builtin_bswap16(PORT), .sin_addr = { __builtin_bswap32(0x0a000009) },
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static int run_listen(int fd)
{
	const int few = 1;

	/* What does not fit is dropped at the socket, always at the same cost. */
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof(few));
	if (bind(fd, (const struct sockaddr *)&sink, sizeof(sink)))
		return 1;
	pause();
	return 0;
}

static int send_all(int fd, long count)
{
	static char payload[BYTES];

	if (connect(fd, (const struct sockaddr *)&sink, sizeof(sink)))
		return 1;
	for (long i = 0; i < count; i++)
		if (send(fd, payload, sizeof(payload), 0) < 0)
			return 1;
	return 0;
}

static int run_send(int fd, long count)
{
	uint64_t began = now_ns();

	if (send_all(fd, count))
		return 1;
	printf("%.1f\n", (double)(now_ns() - began) / count);
	return 0;
}

/* Runs where nothing else does, and counts. */
static pid_t begin_loop(volatile uint64_t *rounds)
{
	const struct sched_param none = {};
	pid_t child = fork();

	if (child)
		return child;
	if (sched_setscheduler(0, SCHED_IDLE, &none))
		_exit(1);
	for (;;)
		(*rounds)++;
}

static int run_spare(int fd, long count, long ms)
{
	const int much = 1 << 28;
	struct timespec rest = {};
	volatile uint64_t *rounds;
	uint64_t began, end, now, before;
	int failed;
	pid_t loop;

	/* A tap's sender does not wait for what is in queues. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &much, sizeof(much)))
		return 1;
	rounds = mmap(NULL, sizeof(*rounds), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (rounds == MAP_FAILED)
		return 1;
	loop = begin_loop(rounds);
	if (loop < 0)
		return 1;
	/* Until it runs. */
	usleep(20000);
	before = *rounds;
	began = now_ns();
	end = began + ms * 1000000ull;
	failed = send_all(fd, count);
	for (now = now_ns(); now < end; now = now_ns()) {
		rest.tv_sec = (end - now) / 1000000000;
		rest.tv_nsec = (end - now) % 1000000000;
		nanosleep(&rest, NULL);
	}
	printf("%llu %llu\n", (unsigned long long)(*rounds - before),
	       (unsigned long long)(now - began));
	kill(loop, SIGKILL);
	return failed || !before;
}

int main(int argc, char **argv)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd >= 0 && argc == 2 && !strcmp(argv[1], "listen"))
		return run_listen(fd);
	if (fd >= 0 && argc == 3 && !strcmp(argv[1], "send"))
		return run_send(fd, atol(argv[2]));
	if (fd >= 0 && argc == 4 && !strcmp(argv[1], "spare"))
		return run_spare(fd, atol(argv[2]), atol(argv[3]));
	return 2;
}
