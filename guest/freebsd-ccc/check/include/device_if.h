/* SPDX-License-Identifier: BSD-3-Clause */
/* For the compile check: what the kernel's build generates from device_if.m. */
#ifndef CHECK_DEVICE_IF_H
#define CHECK_DEVICE_IF_H

#define	CHECK_METHOD(name)						\
	extern struct kobjop_desc name##_desc;				\
	typedef int name##_t(device_t dev)

CHECK_METHOD(device_probe);
CHECK_METHOD(device_attach);
CHECK_METHOD(device_detach);
CHECK_METHOD(device_suspend);
CHECK_METHOD(device_resume);

#endif /* CHECK_DEVICE_IF_H */
