// SPDX-License-Identifier: GPL-2.0
/*
 * TCP as hard on a congestion control as user space can be: connections send,
 * come and go and change their algorithm, while other threads read what each
 * algorithm says of itself.  What they do is random, from a seed; in which order
 * the processors do it is not.
 *
 * stress --sink			takes what the others send
 * stress --to ADDRESS [option=N]...	until the time is over and as many switches
 *					are done as are wanted, or SIGTERM; prints
 *					what it did; fails if it did nothing
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <getopt.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define PORT 5000
#define MAX_SOCKETS 4096
#define MAX_ALGORITHMS 16

#ifndef TCP_CC_INFO
#define TCP_CC_INFO 26
#endif

static struct sockaddr_in6 peer;
static int seconds = 10, seed = 1, uid;
static int senders = 4, churners, switchers, readers, dumpers;
/* At least this many: a busy machine takes longer, and tests as much. */
static int switches;
static const char *algorithm[MAX_ALGORITHMS];
static int algorithms;

/* Sockets that senders and churners have open now; 0 if there is none. */
static _Atomic int sockets[MAX_SOCKETS];
static atomic_bool over;
static atomic_ulong sent, opened, switched, read_infos, dumped;

struct worker {
	pthread_t thread;
	int index;		/* of its socket, if it has one */
	uint64_t random;
	uint32_t algorithm;
};

static uint32_t pick(struct worker *worker, uint32_t below)
{
	worker->random ^= worker->random << 13;
	worker->random ^= worker->random >> 7;
	worker->random ^= worker->random << 17;
	return (worker->random >> 16) % below;
}

/* Another one than this worker chose last, if there is another. */
static void set_algorithm(struct worker *worker, int fd)
{
	const char *name;

	if (algorithms > 1)
		worker->algorithm += 1 + pick(worker, algorithms - 1);
	name = algorithm[worker->algorithm % algorithms];
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name));
}

static int open_socket(struct worker *worker)
{
	struct timeval patience = { .tv_sec = 1 };
	int fd = socket(AF_INET6, SOCK_STREAM, 0);
	int priority = pick(worker, 7);

	if (fd < 0)
		return -1;
	set_algorithm(worker, fd);
	setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority, sizeof(priority));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *)&peer, sizeof(peer))) {
		close(fd);
		return -1;
	}
	atomic_fetch_add(&opened, 1);
	atomic_store(&sockets[worker->index], fd);
	return fd;
}

static void close_socket(struct worker *worker, int fd, bool reset)
{
	struct linger now = { .l_onoff = 1 };

	if (reset)
		setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	atomic_store(&sockets[worker->index], 0);
	close(fd);
}

static long send_bytes(int fd, size_t bytes)
{
	static const char data[65536];
	ssize_t done = send(fd, data, bytes < sizeof(data) ? bytes : sizeof(data),
			    MSG_NOSIGNAL);

	if (done > 0)
		atomic_fetch_add(&sent, done);
	return done;
}

static void *run_sender(void *arg)
{
	struct worker *worker = arg;
	int fd = -1;

	while (!atomic_load(&over)) {
		if (fd < 0)
			fd = open_socket(worker);
		if (fd >= 0 && send_bytes(fd, 65536) < 0 && errno != EAGAIN) {
			close_socket(worker, fd, false);
			fd = -1;
		}
		if (fd < 0)
			usleep(10000);
	}
	return NULL;
}

static void *run_churner(void *arg)
{
	struct worker *worker = arg;

	while (!atomic_load(&over)) {
		int fd = open_socket(worker);

		if (fd < 0) {
			usleep(10000);
			continue;
		}
		for (uint32_t i = pick(worker, 4); i; i--)
			send_bytes(fd, 1 + pick(worker, 20000));
		close_socket(worker, fd, pick(worker, 2));
	}
	return NULL;
}

static int some_socket(struct worker *worker)
{
	int fd = atomic_load(&sockets[pick(worker, senders + churners)]);

	if (!fd)
		usleep(1000);
	return fd;
}

static void *run_switcher(void *arg)
{
	struct worker *worker = arg;

	while (!atomic_load(&over)) {
		int fd = some_socket(worker);
		int priority = pick(worker, 7);

		if (!fd)
			continue;
		set_algorithm(worker, fd);
		if (!pick(worker, 8))
			setsockopt(fd, SOL_SOCKET, SO_PRIORITY, &priority,
				   sizeof(priority));
		atomic_fetch_add(&switched, 1);
	}
	return NULL;
}

static void *run_reader(void *arg)
{
	struct worker *worker = arg;

	while (!atomic_load(&over)) {
		int fd = some_socket(worker);
		char info[512];
		socklen_t size = sizeof(info);

		if (!fd)
			continue;
		if (!getsockopt(fd, IPPROTO_TCP, pick(worker, 8) ? TCP_CC_INFO : TCP_INFO,
				info, &size))
			atomic_fetch_add(&read_infos, 1);
	}
	return NULL;
}

/* All that ss(8) can ask for. */
static bool ask_diag(int fd, int family)
{
	struct {
		struct nlmsghdr header;
		struct inet_diag_req_v2 request;
	} ask = {
		.header = {
			.nlmsg_len = sizeof(ask),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
		},
		.request = {
			.sdiag_family = family,
			.sdiag_protocol = IPPROTO_TCP,
			.idiag_ext = 0xff,
			.idiag_states = -1,
		},
	};

	return send(fd, &ask, sizeof(ask), 0) == sizeof(ask);
}

static void read_dump(int fd)
{
	static __thread char data[32768] __attribute__((aligned(8)));
	ssize_t got;

	while ((got = recv(fd, data, sizeof(data), 0)) > 0) {
		struct nlmsghdr *header = (struct nlmsghdr *)data;

		for (int left = got; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
			if (header->nlmsg_type == NLMSG_DONE ||
			    header->nlmsg_type == NLMSG_ERROR)
				return;
			atomic_fetch_add(&dumped, 1);
		}
	}
}

static void *run_dumper(void *arg)
{
	int fd = socket(AF_NETLINK, SOCK_DGRAM, NETLINK_SOCK_DIAG);

	(void)arg;
	if (fd < 0)
		err(1, "no socket to dump from");
	while (!atomic_load(&over))
		for (int i = 0; i < 2; i++)
			if (ask_diag(fd, i ? AF_INET6 : AF_INET))
				read_dump(fd);
	close(fd);
	return NULL;
}

static void start(struct worker *workers, int *count, int number, void *(*run)(void *))
{
	for (int i = 0; i < number; i++, ++*count) {
		struct worker *worker = &workers[*count];

		worker->index = *count;
		worker->random = 0x9e3779b97f4a7c15u * (seed + *count + 1);
		if (pthread_create(&worker->thread, NULL, run, worker))
			errx(1, "no thread for worker %d", *count);
	}
}

static bool did(const char *what, int workers, unsigned long number)
{
	if (workers)
		printf(" %lu %s", number, what);
	return !workers || number;
}

static void wait_for_end(void)
{
	struct timespec until = { .tv_sec = seconds }, longer = { .tv_sec = 1 };
	sigset_t term;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	if (sigtimedwait(&term, NULL, &until) == SIGTERM)
		return;
	while (atomic_load(&switched) < (unsigned long)switches)
		if (sigtimedwait(&term, NULL, &longer) == SIGTERM)
			return;
}

static int run_all(void)
{
	static struct worker workers[2 * MAX_SOCKETS];
	sigset_t term;
	int count = 0;
	bool all;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	pthread_sigmask(SIG_BLOCK, &term, NULL);
	start(workers, &count, senders, run_sender);
	start(workers, &count, churners, run_churner);
	start(workers, &count, switchers, run_switcher);
	start(workers, &count, readers, run_reader);
	start(workers, &count, dumpers, run_dumper);
	wait_for_end();
	atomic_store(&over, true);
	while (count)
		pthread_join(workers[--count].thread, NULL);
	printf("# stress:");
	all = did("bytes sent", senders, sent);
	all &= did("connections", 1, opened);
	all &= did("switches", switchers, switched);
	all &= did("infos read", readers, read_infos);
	all &= did("sockets dumped", dumpers, dumped);
	printf("\n");
	return !all;
}

/* One thread is enough: it only throws away. */
static int sink(void)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons(PORT) };
	int listener = socket(AF_INET6, SOCK_STREAM, 0), queue = epoll_create1(0), yes = 1;
	struct epoll_event event = { .events = EPOLLIN };
	static char data[1 << 18];

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
	if (bind(listener, (struct sockaddr *)&any, sizeof(any)) || listen(listener, 1024))
		err(1, "cannot listen at port %d", PORT);
	event.data.fd = listener;
	epoll_ctl(queue, EPOLL_CTL_ADD, listener, &event);
	while (epoll_wait(queue, &event, 1, -1) == 1 || errno == EINTR) {
		int fd = event.data.fd;

		if (fd == listener) {
			event.data.fd = accept(listener, NULL, NULL);
			event.events = EPOLLIN;
			if (event.data.fd >= 0)
				epoll_ctl(queue, EPOLL_CTL_ADD, event.data.fd, &event);
		} else if (recv(fd, data, sizeof(data), 0) <= 0) {
			close(fd);
		}
	}
	err(1, "no more events");
}

static void parse_peer(const char *text)
{
	char mapped[64];

	snprintf(mapped, sizeof(mapped), "%s%s", strchr(text, ':') ? "" : "::ffff:", text);
	peer.sin6_family = AF_INET6;
	peer.sin6_port = htons(PORT);
	if (inet_pton(AF_INET6, mapped, &peer.sin6_addr) != 1)
		errx(2, "'%s' is no IPv4 or IPv6 address", text);
}

static void parse_algorithms(char *text)
{
	algorithms = 0;
	for (text = strtok(text, ","); text && algorithms < MAX_ALGORITHMS; text = strtok(NULL, ","))
		algorithm[algorithms++] = text;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int *value;
	} number[] = {
		{ "seconds", &seconds }, { "seed", &seed }, { "uid", &uid },
		{ "senders", &senders }, { "churners", &churners }, { "switchers", &switchers },
		{ "readers", &readers }, { "dumpers", &dumpers },
		{ "switches", &switches },
	};
	enum { NUMBERS = sizeof(number) / sizeof(number[0]), TO, ALGORITHMS, SINK };
	struct option options[NUMBERS + 4] = {};
	static char default_algorithm[] = "ccc";
	int chosen;

	for (int i = 0; i < NUMBERS; i++)
		options[i] = (struct option){ number[i].name, required_argument, NULL, i };
	options[NUMBERS] = (struct option){ "to", required_argument, NULL, TO };
	options[NUMBERS + 1] = (struct option){ "algorithms", required_argument, NULL, ALGORITHMS };
	options[NUMBERS + 2] = (struct option){ "sink", no_argument, NULL, SINK };
	while ((chosen = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (chosen) {
		case TO: parse_peer(optarg); break;
		case ALGORITHMS: parse_algorithms(optarg); break;
		case SINK: return sink();
		case '?': return 2;
		default: *number[chosen].value = atoi(optarg);
		}
	}
	if (!peer.sin6_family || senders + churners > MAX_SOCKETS)
		errx(2, "--to ADDRESS is missing, or there are more than %d sockets", MAX_SOCKETS);
	if (!algorithms)
		parse_algorithms(default_algorithm);
	if (uid && (setgid(uid) || setuid(uid)))
		err(1, "cannot become user %d", uid);
	signal(SIGPIPE, SIG_IGN);
	return run_all();
}
