// SPDX-License-Identifier: GPL-2.0
/*
 * For tests: a data race while it is loaded, so that it is seen whether races are.
 */
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/kthread.h>
#include <linux/module.h>

static struct task_struct *thread[2];
static unsigned int count;

static int race(void *unused)
{
	while (!kthread_should_stop()) {
		unsigned int n;

		for (n = 0; n < 10000; n++) {
			count++;
			barrier();
		}
		usleep_range(100, 200);
	}
	return 0;
}

static void racy_exit(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(thread); i++) {
		if (!IS_ERR_OR_NULL(thread[i]))
			kthread_stop(thread[i]);
	}
}

static int __init racy_init(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(thread); i++) {
		thread[i] = kthread_run(race, NULL, "racy/%d", i);
		if (IS_ERR(thread[i])) {
			racy_exit();
			return PTR_ERR(thread[i]);
		}
	}
	return 0;
}

module_init(racy_init);
module_exit(racy_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Has a data race");
