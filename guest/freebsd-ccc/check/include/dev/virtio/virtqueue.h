/* SPDX-License-Identifier: BSD-3-Clause */
/* For the compile check: what the driver calls of a virtqueue. */
#ifndef CHECK_VIRTQUEUE_H
#define CHECK_VIRTQUEUE_H

struct sglist;
struct virtqueue;

typedef void virtqueue_intr_t(void *context);

#define	VIRTQUEUE_MAX_NAME_SZ	32

struct vq_alloc_info {
	char vqai_name[VIRTQUEUE_MAX_NAME_SZ];
	int vqai_maxindirsz;
	virtqueue_intr_t *vqai_intr;
	void *vqai_intr_arg;
	struct virtqueue **vqai_vq;
};

#define	VQ_ALLOC_INFO_INIT(info, indirect, intr, context, vq, ...) do {	\
	snprintf((info)->vqai_name, VIRTQUEUE_MAX_NAME_SZ, __VA_ARGS__); \
	(info)->vqai_maxindirsz = (indirect);				\
	(info)->vqai_intr = (intr);					\
	(info)->vqai_intr_arg = (context);				\
	(info)->vqai_vq = (vq);						\
} while (0)

void	*virtqueue_drain(struct virtqueue *vq, int *last);
int	virtqueue_enable_intr(struct virtqueue *vq);
void	virtqueue_disable_intr(struct virtqueue *vq);
int	virtqueue_size(struct virtqueue *vq);
void	virtqueue_notify(struct virtqueue *vq);
int	virtqueue_enqueue(struct virtqueue *vq, void *cookie,
	    struct sglist *list, int readable, int writable);
void	*virtqueue_dequeue(struct virtqueue *vq, uint32_t *length);

#endif /* CHECK_VIRTQUEUE_H */
