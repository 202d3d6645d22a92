/* SPDX-License-Identifier: BSD-3-Clause */
/* For the compile check: what the kernel's build generates from virtio_if.m. */
#ifndef CHECK_VIRTIO_IF_H
#define CHECK_VIRTIO_IF_H

#include "device_if.h"

CHECK_METHOD(virtio_attach_completed);

#endif /* CHECK_VIRTIO_IF_H */
