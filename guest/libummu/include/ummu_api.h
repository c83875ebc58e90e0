/* SPDX-License-Identifier: MIT */
/*
 * libummu: share memory of this process with devices behind a UMMU.
 *
 * All functions return 0 on success and a negative value on failure; errno is
 * not part of the contract.  They may be called from any thread; calls on
 * different TIDs run side by side.  None is safe in a signal handler.
 */
#ifndef UMMU_API_H
#define UMMU_API_H

#include <stddef.h>
#include <stdint.h>

#include "ummu_core.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where log lines go; name and emit are copied at registration. */
typedef struct ummu_log_backend {
	const char *name;
	void (*emit)(int level, char *msg);
	void *reserved[4];
} ummu_log_backend_t;

/* Get a token id; *tid is written on success only. */
int ummu_allocate_tid(struct ummu_tid_attr *attr, uint32_t *tid);

/* Close everything under a token id and give it back. */
int ummu_free_tid(uint32_t tid);

/* Open [data, data + data_size) to devices, or add a second token to an open range. */
int ummu_grant(uint32_t tid, void *data, size_t data_size, enum ummu_mapt_perm perm,
	       struct ummu_seg_attr *attr);

/* Close a range whatever tokens it has.  When it returns, devices have lost the access. */
int ummu_ungrant(uint32_t tid, void *data, size_t size);

/* Remove one token of a range; the last one closes it. */
int ummu_ungrant_by_token(uint32_t tid, void *data, size_t size, uint32_t token_val);

/* Replace the log sink (syslog at first), and go back to syslog. */
int ummu_log_register_backend(ummu_log_backend_t *backend);
void ummu_log_restore_default(void);

#ifdef __cplusplus
}
#endif

#endif /* UMMU_API_H */
