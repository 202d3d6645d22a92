// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * Counts the instructions of tcp_ack() in a User Mode Linux kernel, callees
 * included, by running it a step at a time.
 *
 * usage: steps OUT NUMBER... KERNEL ARGUMENT...
 *
 * The numbers are those of struct place; ccc_experiments/ack_cost.py finds them.
 * The kernel is a process, and is stopped at each call.  Of every skip-th that
 * has data in flight OUT.calls gets a line: packets delivered, states before and
 * after, instructions in all, of the module, and of telling the device, and
 * messages.  OUT.module has how often each byte of the module began one.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

/* Signals that come while a call is counted wait until it is over. */
#define HELD_MAX	64
/* Bytes of a module that are counted apart. */
#define MODULE_MAX	65536
#define BREAKPOINT	0xccu

/* Where things are, of the kernel and of the module's text. */
struct place {
	uint64_t tcp_ack;
	uint64_t notify;	/* tells the device: no work of the guest's */
	uint64_t delivered;	/* of a socket */
	uint64_t in_flight;
	uint64_t ca_state;
	uint64_t ca_ops;
	uint64_t cong_avoid;	/* of these */
	uint64_t module_cong_avoid;
	uint64_t module_bell;
	uint64_t module_bytes;	/* 0: there is none */
	uint64_t skip;
};

#define NUMBERS	(sizeof(struct place) / sizeof(uint64_t))

struct count {
	uint32_t delivered;
	unsigned int before, after;
	uint64_t all, module, notify, messages;
};

static struct place place;
static uint8_t first_byte;
static uint32_t *begun;
static pid_t traced;
static int held[HELD_MAX], held_count;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint64_t peek(uint64_t address)
{
	uint64_t word;

	errno = 0;
	word = (uint64_t)ptrace(PTRACE_PEEKDATA, traced, address, 0);
	if (errno)
		fail("steps: peek");
	return word;
}

static void put_first_byte(uint8_t byte)
{
	uint64_t word = (peek(place.tcp_ack) & ~0xffull) | byte;

	if (ptrace(PTRACE_POKEDATA, traced, place.tcp_ack, word))
		fail("steps: poke");
}

static struct user_regs_struct registers(void)
{
	struct user_regs_struct regs;

	if (ptrace(PTRACE_GETREGS, traced, 0, &regs))
		fail("steps: registers");
	return regs;
}

/* What it stops with, as waitpid() has it. */
static int wait_for_it(void)
{
	int status;

	if (waitpid(traced, &status, __WALL) < 0)
		fail("steps: wait");
	if (WIFEXITED(status))
		exit(WEXITSTATUS(status));
	if (WIFSIGNALED(status))
		exit(128 + WTERMSIG(status));
	return status >> 8;
}

static int go_on(int request, int signal)
{
	if (ptrace(request, traced, 0, signal))
		fail("steps: go on");
	return wait_for_it();
}

/* One instruction, and where it led. */
static struct user_regs_struct step(void)
{
	int signal;

	while ((signal = go_on(PTRACE_SINGLESTEP, 0)) != SIGTRAP) {
		if (held_count == HELD_MAX) {
			fprintf(stderr, "steps: too many signals\n");
			exit(1);
		}
		held[held_count++] = signal;
	}
	return registers();
}

static void deliver_held(void)
{
	while (held_count)
		kill(traced, held[--held_count]);
}

static uint64_t module_text(uint64_t sk)
{
	uint64_t ops = peek(sk + place.ca_ops);

	return peek(ops + place.cong_avoid) - place.module_cong_avoid;
}

static unsigned int ca_state(uint64_t sk)
{
	return peek(sk + place.ca_state) & 0x1f;
}

static void count_module(struct count *count, uint64_t offset)
{
	if (offset >= place.module_bytes)
		return;
	count->module++;
	count->messages += offset == place.module_bell;
	begun[offset]++;
}

/* Runs one call to its end. */
static struct count count_call(struct user_regs_struct regs)
{
	uint64_t sk = regs.rdi, top = regs.rsp, notifies = 0;
	uint32_t delivered = (uint32_t)peek(sk + place.delivered);
	struct count count = { .before = ca_state(sk) };
	uint64_t module = module_text(sk);

	for (; regs.rsp <= top; regs = step()) {
		if (regs.rip == place.notify)
			notifies = regs.rsp;
		else if (regs.rsp > notifies)
			notifies = 0;
		count.all++;
		count.notify += notifies != 0;
		count_module(&count, regs.rip - module);
	}
	count.delivered = (uint32_t)peek(sk + place.delivered) - delivered;
	count.after = ca_state(sk);
	return count;
}

static int is_wanted(uint64_t sk)
{
	static uint64_t calls;

	return (uint32_t)peek(sk + place.in_flight) &&
	       ++calls % place.skip == 0;
}

static void at_tcp_ack(FILE *calls)
{
	struct user_regs_struct regs = registers();
	struct count count;

	regs.rip = place.tcp_ack;
	if (ptrace(PTRACE_SETREGS, traced, 0, &regs))
		fail("steps: set registers");
	put_first_byte(first_byte);
	if (is_wanted(regs.rdi)) {
		count = count_call(regs);
		fprintf(calls, "%u %u %u %lu %lu %lu %lu\n", count.delivered,
			count.before, count.after, count.all, count.module,
			count.notify, count.messages);
	} else {
		step();
	}
	put_first_byte(BREAKPOINT);
	deliver_held();
}

static void follow(FILE *calls)
{
	int stop, signal = 0;

	for (;;) {
		stop = go_on(PTRACE_CONT, signal);
		signal = 0;
		if (stop == (SIGTRAP | PTRACE_EVENT_EXEC << 8)) {
			/* It begins anew, without randomized addresses. */
			first_byte = peek(place.tcp_ack) & 0xff;
			put_first_byte(BREAKPOINT);
		} else if (stop == SIGTRAP) {
			at_tcp_ack(calls);
		} else if (stop >> 8 == 0) {
			signal = stop;
		}
	}
}

static void begin(char **command)
{
	traced = fork();
	if (traced < 0)
		fail("steps: fork");
	if (!traced) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		execv(command[0], command);
		fail(command[0]);
	}
	wait_for_it();
	if (ptrace(PTRACE_SETOPTIONS, traced, 0,
		   PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL))
		fail("steps: options");
}

static void map_begun(const char *name)
{
	size_t bytes = MODULE_MAX * sizeof(*begun);
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);

	if (fd < 0 || ftruncate(fd, bytes))
		fail(name);
	begun = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (begun == MAP_FAILED)
		fail(name);
}

int main(int argc, char **argv)
{
	uint64_t *numbers = (uint64_t *)&place;
	char name[4096];
	FILE *calls;
	size_t i;

	if (argc < (int)NUMBERS + 3) {
		fprintf(stderr, "usage: steps OUT NUMBER... KERNEL ARGUMENT...\n");
		return 2;
	}
	for (i = 0; i < NUMBERS; i++)
		numbers[i] = strtoull(argv[2 + i], NULL, 0);
	if (place.module_bytes > MODULE_MAX || !place.skip) {
		fprintf(stderr, "steps: module too large, or no skip\n");
		return 2;
	}
	snprintf(name, sizeof(name), "%s.%d.module", argv[1], getpid());
	map_begun(name);
	snprintf(name, sizeof(name), "%s.%d.calls", argv[1], getpid());
	calls = fopen(name, "w");
	if (!calls)
		fail(name);
	setvbuf(calls, NULL, _IOLBF, 0);
	begin(argv + 2 + NUMBERS);
	follow(calls);
}
