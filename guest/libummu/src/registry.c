// SPDX-License-Identifier: MIT
/* Which TIDs this process holds: two levels of 1024 pointers, made as needed. */
#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "internal.h"
#include "sys.h"

#define LEAF_BITS 10
#define LEAF_SIZE (1u << LEAF_BITS)
#define EXIT_WAIT_S 1

static struct {
	pthread_rwlock_t lock;
	struct tid **leaf[LEAF_SIZE];
} registry = { .lock = PTHREAD_RWLOCK_INITIALIZER };

static struct tid **place_of(uint32_t tid)
{
	struct tid **leaf;

	if (tid >= 1u << TID_BITS)
		return NULL;
	leaf = registry.leaf[tid >> LEAF_BITS];
	return leaf ? &leaf[tid & (LEAF_SIZE - 1)] : NULL;
}

static void unref(struct tid *t)
{
	if (__atomic_sub_fetch(&t->refs, 1, __ATOMIC_ACQ_REL) == 0)
		tid_free_bookkeeping(t);
}

struct tid *tid_get(uint32_t tid)
{
	struct tid **place, *t;

	pthread_rwlock_rdlock(&registry.lock);
	place = place_of(tid);
	t = place ? *place : NULL;
	if (t)
		__atomic_add_fetch(&t->refs, 1, __ATOMIC_RELAXED);
	pthread_rwlock_unlock(&registry.lock);
	if (!t)
		return NULL;
	pthread_mutex_lock(&t->lock);
	if (t->dead) {
		/* Freed by another thread while we waited. */
		tid_put(t);
		return NULL;
	}
	return t;
}

void tid_put(struct tid *t)
{
	pthread_mutex_unlock(&t->lock);
	unref(t);
}

int registry_add(struct tid *t)
{
	struct tid ***leaf;
	int ret = -1;

	if (t->tid >= 1u << TID_BITS)
		return -1;
	leaf = &registry.leaf[t->tid >> LEAF_BITS];
	pthread_rwlock_wrlock(&registry.lock);
	if (!*leaf)
		*leaf = ummu_sys.alloc(LEAF_SIZE, sizeof(**leaf));
	if (!*leaf) {
		ret = -ENOMEM;
	} else if (!(*leaf)[t->tid & (LEAF_SIZE - 1)]) {
		(*leaf)[t->tid & (LEAF_SIZE - 1)] = t;
		t->refs = 1;
		ret = 0;
	}
	pthread_rwlock_unlock(&registry.lock);
	return ret;
}

struct tid *registry_take(uint32_t tid)
{
	struct tid **place, *t;

	pthread_rwlock_wrlock(&registry.lock);
	place = place_of(tid);
	t = place ? *place : NULL;
	if (t)
		*place = NULL;		/* the registry's reference is ours now */
	pthread_rwlock_unlock(&registry.lock);
	if (t) {
		pthread_mutex_lock(&t->lock);
		t->dead = true;
	}
	return t;
}

static void for_each(void (*fn)(struct tid *))
{
	for (uint32_t i = 0; i < LEAF_SIZE; i++)
		for (uint32_t k = 0; registry.leaf[i] && k < LEAF_SIZE; k++)
			if (registry.leaf[i][k])
				fn(registry.leaf[i][k]);
}

static void lock_one(struct tid *t)
{
	pthread_mutex_lock(&t->lock);
}

static void unlock_one(struct tid *t)
{
	pthread_mutex_unlock(&t->lock);
}

void registry_lock_all(void)
{
	pthread_rwlock_wrlock(&registry.lock);
	for_each(lock_one);
}

void registry_unlock_all(void)
{
	for_each(unlock_one);
	pthread_rwlock_unlock(&registry.lock);
}

void registry_forget_all(void)
{
	for (uint32_t i = 0; i < LEAF_SIZE; i++) {
		for (uint32_t k = 0; registry.leaf[i] && k < LEAF_SIZE; k++)
			if (registry.leaf[i][k])
				tid_free_bookkeeping(registry.leaf[i][k]);
		free(registry.leaf[i]);
		registry.leaf[i] = NULL;
	}
	/* The thread that would unlock it is the one that locked it before the fork. */
	registry.lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}

/* exit() may come from a signal handler inside a call of ours: no wait without end. */
static struct timespec exit_limit(void)
{
	struct timespec limit;

	clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += EXIT_WAIT_S;
	return limit;
}

/*
 * Other threads may be in the middle of calls; their next one finds no TID.
 * What cannot be locked in time is left to the kernel, which frees all of it.
 */
void registry_end_all(void (*fn)(struct tid *))
{
	struct timespec limit = exit_limit();

	if (pthread_rwlock_timedwrlock(&registry.lock, &limit))
		return;
	for (uint32_t i = 0; i < LEAF_SIZE; i++)
		for (uint32_t k = 0; registry.leaf[i] && k < LEAF_SIZE; k++) {
			struct tid *t = registry.leaf[i][k];

			if (!t || pthread_mutex_timedlock(&t->lock, &limit))
				continue;
			t->dead = true;
			fn(t);
			pthread_mutex_unlock(&t->lock);
		}
	pthread_rwlock_unlock(&registry.lock);
}
