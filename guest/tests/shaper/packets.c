// SPDX-License-Identifier: GPL-2.0
/*
 * packets listen: binds the port, and reads nothing.
 * packets send N: sends so many datagrams, and prints the nanoseconds of each.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static int run_send(int fd, long count)
{
	static char payload[BYTES];
	uint64_t began;

	if (connect(fd, (const struct sockaddr *)&sink, sizeof(sink)))
		return 1;
	began = now_ns();
	for (long i = 0; i < count; i++)
		if (send(fd, payload, sizeof(payload), 0) < 0)
			return 1;
	printf("%.1f\n", (double)(now_ns() - began) / count);
	return 0;
}

int main(int argc, char **argv)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (fd >= 0 && argc == 2 && !strcmp(argv[1], "listen"))
		return run_listen(fd);
	if (fd >= 0 && argc == 3 && !strcmp(argv[1], "send"))
		return run_send(fd, atol(argv[2]));
	return 2;
}
