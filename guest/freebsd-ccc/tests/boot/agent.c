/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The first and only program of a FreeBSD guest in the tests: it does what the
 * lines of its console ask for, and answers each with one that begins with "= ".
 * Alone on the memory disk, so without a C library.
 */
#include <sys/param.h>
#include <sys/bus.h>
#include <sys/fcntl.h>
#include <sys/ioccom.h>
#include <sys/jail.h>
#include <sys/poll.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/sockio.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>

#include <net/if.h>
#include <netinet/in.h>
#include <netinet/in_var.h>
#include <netinet/tcp.h>
#include <netinet6/nd6.h>

#include <stdbool.h>

#define	WORDS		8
/* As linker.h has it, which shows it to the kernel alone. */
#define	UNLOAD_FORCE	1
#define	FLOWS_MAX	64
#define	CHUNK		65536

static char line[512], chunk[CHUNK];

static long
call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;
	unsigned char failed;
	long result;

	__asm__ volatile("syscall; setc %1"
	    : "=a" (result), "=q" (failed), "+r" (r10), "+r" (r8), "+r" (r9)
	    : "a" (number), "D" (a), "S" (b), "d" (c)
	    : "rcx", "r11", "memory");
	return (failed ? -result : result);
}

#define	CALL(name, ...)	CALL_(name, __VA_ARGS__, 0, 0, 0, 0, 0, 0)
#define	CALL_(name, a, b, c, d, e, f, ...)				\
	call(SYS_##name, (long)(a), (long)(b), (long)(c), (long)(d),	\
	    (long)(e), (long)(f))

void *
memset(void *to, int value, size_t size)
{
	char *at = to;

	while (size-- > 0)
		*at++ = value;
	return (to);
}

void *
memcpy(void *to, const void *from, size_t size)
{
	const char *source = from;
	char *at = to;

	while (size-- > 0)
		*at++ = *source++;
	return (to);
}

static size_t
length(const char *text)
{
	size_t size = 0;

	while (text[size] != '\0')
		size++;
	return (size);
}

static int
equal(const char *a, const char *b)
{
	while (*a != '\0' && *a == *b) {
		a++;
		b++;
	}
	return (*a == *b);
}

static unsigned long
number(const char *text)
{
	unsigned long value = 0;

	while (*text >= '0' && *text <= '9')
		value = value * 10 + *text++ - '0';
	return (value);
}

static char *
append(char *to, const char *text)
{
	while (*text != '\0')
		*to++ = *text++;
	return (to);
}

static char *
append_number(char *to, long value)
{
	char digits[24], *at = &digits[23];
	unsigned long rest = value < 0 ? -value : value;

	*at = '\0';
	do {
		*--at = '0' + rest % 10;
		rest /= 10;
	} while (rest != 0);
	if (value < 0)
		*--at = '-';
	return (append(to, at));
}

static void
say(const char *text)
{
	CALL(write, 1, text, length(text));
}

/* What a system call said: its result, or the error as a negative number. */
static void
answer(long value)
{
	char text[64], *at;

	at = append_number(append(text, "= "), value);
	memcpy(at, "\n", 2);
	say(text);
}

static uint32_t
address(const char *text)
{
	uint32_t value = 0;
	int i;

	for (i = 0; i < 4; i++) {
		value = value << 8 | number(text);
		while (*text >= '0' && *text <= '9')
			text++;
		if (*text == '.')
			text++;
	}
	return (__builtin_bswap32(value));
}

static struct sockaddr_in
sockaddr(uint32_t host, int port)
{
	return ((struct sockaddr_in) {
		.sin_len = sizeof(struct sockaddr_in),
		.sin_family = AF_INET,
		.sin_port = __builtin_bswap16(port),
		.sin_addr.s_addr = host,
	});
}

/* An address of IPv6 of whole groups and one "::". */
static struct sockaddr_in6
sockaddr6(const char *text, int port)
{
	struct sockaddr_in6 to = {
		.sin6_len = sizeof(struct sockaddr_in6),
		.sin6_family = AF_INET6,
		.sin6_port = __builtin_bswap16(port),
	};
	const char *end = text + length(text);
	uint8_t *group = to.sin6_addr.s6_addr;
	unsigned int value, shift, after;

	while (*text != '\0') {
		for (value = 0; *text != ':' && *text != '\0'; text++)
			value = value << 4 |
			    (*text <= '9' ? *text - '0' : *text - 'a' + 10);
		*group++ = value >> 8;
		*group++ = value;
		text += *text == ':';
		if (*text != ':')
			continue;
		/* What follows goes to the end. */
		for (after = 1, text++, shift = 0; text + shift < end; shift++)
			after += text[shift] == ':';
		group = to.sin6_addr.s6_addr + 16 - 2 * after;
	}
	return (to);
}

static bool
is_six(const char *text)
{
	while (*text != ':' && *text != '\0')
		text++;
	return (*text == ':');
}

/* address6 IF ADDRESS: in a network of /64. */
static long
set_address6(char **word)
{
	struct in6_aliasreq request;
	long s, error;

	memset(&request, 0, sizeof(request));
	memcpy(request.ifra_name, word[1], length(word[1]));
	request.ifra_addr = sockaddr6(word[2], 0);
	request.ifra_prefixmask = sockaddr6("ffff:ffff:ffff:ffff::0", 0);
	/* Nobody else has it. */
	request.ifra_flags = IN6_IFF_NODAD;
	request.ifra_lifetime.ia6t_vltime = ND6_INFINITE_LIFETIME;
	request.ifra_lifetime.ia6t_pltime = ND6_INFINITE_LIFETIME;
	s = CALL(socket, AF_INET6, SOCK_DGRAM, 0);
	error = CALL(ioctl, s, SIOCAIFADDR_IN6, &request);
	CALL(close, s);
	return (error);
}

static int64_t
now_ms(void)
{
	struct timespec now;

	CALL(clock_gettime, 4 /* CLOCK_MONOTONIC */, &now);
	return (now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

/* address IF ADDRESS MASK */
static long
set_address(char **word)
{
	struct ifaliasreq request;
	struct sockaddr_in *set;
	long s, error;

	memset(&request, 0, sizeof(request));
	memcpy(request.ifra_name, word[1], length(word[1]));
	set = (struct sockaddr_in *)&request.ifra_addr;
	*set = sockaddr(address(word[2]), 0);
	set = (struct sockaddr_in *)&request.ifra_mask;
	*set = sockaddr(address(word[3]), 0);
	s = CALL(socket, AF_INET, SOCK_DGRAM, 0);
	error = CALL(ioctl, s, SIOCAIFADDR, &request);
	CALL(close, s);
	return (error);
}

static int
connected(char **word, int priority)
{
	struct sockaddr_in to = sockaddr(address(word[1]), number(word[2]));
	struct sockaddr_in6 to6 = sockaddr6(word[1], number(word[2]));
	bool six = is_six(word[1]);
	int s = CALL(socket, six ? AF_INET6 : AF_INET, SOCK_STREAM, 0);

	if (priority != 0)
		CALL(setsockopt, s, IPPROTO_TCP, TCP_CCALGOOPT, &priority,
		    sizeof(priority));
	if (six)
		return (CALL(connect, s, &to6, sizeof(to6)) < 0 ? -1 : s);
	return (CALL(connect, s, &to, sizeof(to)) < 0 ? -1 : s);
}

/* flows ADDRESS PORT COUNT SECONDS PRIORITY: in a process of its own. */
static void
send_flows(char **word)
{
	int count = number(word[3]), i;
	int64_t end, sent[FLOWS_MAX] = { 0 };
	struct pollfd flow[FLOWS_MAX];
	char text[FLOWS_MAX * 24 + 64], *at;
	long bytes;

	for (i = 0; i < count && i < FLOWS_MAX; i++) {
		flow[i].fd = connected(word, number(word[5]));
		flow[i].events = POLLOUT;
		CALL(fcntl, flow[i].fd, F_SETFL, O_NONBLOCK);
	}
	end = now_ms() + number(word[4]) * 1000;
	while (now_ms() < end) {
		CALL(poll, flow, count, 100);
		for (i = 0; i < count; i++) {
			if ((flow[i].revents & POLLOUT) == 0)
				continue;
			bytes = CALL(write, flow[i].fd, chunk, CHUNK);
			sent[i] += bytes > 0 ? bytes : 0;
		}
	}
	at = append(text, "# sent");
	for (i = 0; i < count; i++) {
		*at++ = ' ';
		at = append_number(at, sent[i]);
	}
	memcpy(at, "\n", 2);
	say(text);
	CALL(exit, 0);
}

/* churn ADDRESS PORT COUNT BYTES: so many connections, one after another. */
static long
churn(char **word)
{
	long done = 0, i, left, bytes;
	int s;

	for (i = number(word[3]); i > 0; i--) {
		s = connected(word, 0);
		if (s < 0)
			continue;
		for (left = number(word[4]); left > 0; left -= bytes) {
			bytes = CALL(write, s, chunk,
			    left < CHUNK ? left : CHUNK);
			if (bytes <= 0)
				break;
		}
		done += left <= 0;
		CALL(close, s);
	}
	return (done);
}

static void
read_string(const char *name)
{
	char text[1024];
	size_t size = sizeof(text) - 8;
	long error;

	memcpy(text, "= ", 2);
	error = CALL(__sysctlbyname, name, length(name), text + 2, &size, 0, 0);
	if (error < 0) {
		answer(error);
		return;
	}
	while (size > 0 && text[1 + size] == '\0')
		size--;
	memcpy(text + 2 + size, "\n", 2);
	say(text);
}

static long
read_number(const char *name)
{
	uint64_t value = 0;
	size_t size = sizeof(value);
	long error;

	error = CALL(__sysctlbyname, name, length(name), &value, &size, 0, 0);
	return (error < 0 ? error : (long)value);
}

static long
write_string(const char *name, const char *value)
{
	return (CALL(__sysctlbyname, name, length(name), 0, 0, value,
	    length(value)));
}

static long
write_number(const char *name, unsigned int value)
{
	return (CALL(__sysctlbyname, name, length(name), 0, 0, &value,
	    sizeof(value)));
}

/* device VERB NAME: as devctl(8). */
static long
control_device(const char *verb, const char *name)
{
	unsigned long request = equal(verb, "detach") ? DEV_DETACH :
	    equal(verb, "attach") ? DEV_ATTACH :
	    equal(verb, "suspend") ? DEV_SUSPEND : DEV_RESUME;
	struct devreq device;
	long fd, error;

	memset(&device, 0, sizeof(device));
	memcpy(device.dr_name, name, length(name));
	fd = CALL(open, "/dev/devctl2", O_RDWR);
	if (fd < 0)
		return (fd);
	error = CALL(ioctl, fd, request, &device);
	CALL(close, fd);
	return (error);
}

static long
unload(const char *name, int flags)
{
	long file = CALL(kldfind, name);

	return (file < 0 ? file : CALL(kldunloadf, file, flags));
}

/* priority BYTES [VALUE]: that option's size and value for a socket; what it reads then. */
static long
priority_option(char **word)
{
	socklen_t size = number(word[1]);
	uint64_t value = number(word[2]);
	int s = CALL(socket, AF_INET, SOCK_STREAM, 0);
	long error = 0;

	if (*word[2] != '\0')
		error = CALL(setsockopt, s, IPPROTO_TCP, TCP_CCALGOOPT, &value,
		    size);
	value = 0;
	if (error >= 0)
		error = CALL(getsockopt, s, IPPROTO_TCP, TCP_CCALGOOPT, &value,
		    &size);
	CALL(close, s);
	return (error < 0 ? error : value);
}

/* jail IF: a jail with a network of its own and that interface; the agent goes there. */
static long
enter_jail(const char *interface)
{
	static char path[] = "/";
	int network = 1 /* JAIL_SYS_NEW */;
	struct iovec parameter[] = {
		{ "path", 5 }, { path, sizeof(path) },
		{ "persist", 8 }, { NULL, 0 },
		{ "vnet", 5 }, { &network, sizeof(network) },
	};
	struct ifreq request;
	long jail, s, error;

	jail = CALL(jail_set, parameter, 6, JAIL_CREATE);
	if (jail < 0)
		return (jail);
	memset(&request, 0, sizeof(request));
	memcpy(request.ifr_name, interface, length(interface));
	request.ifr_jid = jail;
	s = CALL(socket, AF_INET, SOCK_DGRAM, 0);
	error = CALL(ioctl, s, SIOCSIFVNET, &request);
	CALL(close, s);
	return (error < 0 ? error : CALL(jail_attach, jail));
}

static void
obey(char **word)
{
	if (equal(word[0], "load"))
		answer(CALL(kldload, word[1]));
	else if (equal(word[0], "unload"))
		answer(unload(word[1], 0));
	else if (equal(word[0], "unload-forced"))
		answer(unload(word[1], UNLOAD_FORCE));
	else if (equal(word[0], "priority"))
		answer(priority_option(word));
	else if (equal(word[0], "string"))
		read_string(word[1]);
	else if (equal(word[0], "number"))
		answer(read_number(word[1]));
	else if (equal(word[0], "set-string"))
		answer(write_string(word[1], word[2]));
	else if (equal(word[0], "set-number"))
		answer(write_number(word[1], number(word[2])));
	else if (equal(word[0], "address"))
		answer(set_address(word));
	else if (equal(word[0], "address6"))
		answer(set_address6(word));
	else if (equal(word[0], "device"))
		answer(control_device(word[1], word[2]));
	else if (equal(word[0], "jail"))
		answer(enter_jail(word[1]));
	else if (equal(word[0], "churn"))
		answer(churn(word));
	else if (equal(word[0], "flows"))
		CALL(fork, 0) == 0 ? send_flows(word) : answer(0);
	else if (equal(word[0], "halt"))
		CALL(reboot, RB_POWEROFF | RB_NOSYNC);
	else
		answer(-1000);
}

static void
obey_line(void)
{
	static char none[] = "";
	char *word[WORDS], *at = line;
	int count;

	for (count = 0; count < WORDS; count++) {
		while (*at == ' ')
			at++;
		word[count] = *at != '\0' ? at : none;
		while (*at != ' ' && *at != '\0')
			at++;
		if (*at != '\0')
			*at++ = '\0';
	}
	obey(word);
}

static void
main_loop(void)
{
	long size;

	CALL(open, "/dev/console", O_RDWR);
	CALL(dup2, 0, 1);
	say("= ready\n");
	for (;;) {
		while (CALL(wait4, -1, 0, WNOHANG, 0) > 0)
			;
		size = CALL(read, 0, line, sizeof(line) - 1);
		while (size > 0 && (line[size - 1] == '\n' ||
		    line[size - 1] == '\r'))
			size--;
		if (size <= 0)
			continue;
		line[size] = '\0';
		obey_line();
	}
}

__attribute__((force_align_arg_pointer)) void
_start(void)
{
	main_loop();
}
