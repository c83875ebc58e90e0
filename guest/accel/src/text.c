// SPDX-License-Identifier: MIT
/* Plain words for every completion status and every UMMU event. */
#include <inttypes.h>
#include <stdio.h>

#include "accel_layout.h"
#include "ummu_accel_lib.h"

struct event_text {
	uint8_t code;
	const char *name;
	const char *words;
};

static const struct event_text events[] = {
	{ UMMU_EVT_UT, "UT", "translation type not supported" },
	{ UMMU_EVT_BAD_DSTEID, "BAD_DSTEID", "the device's entity id is unknown to the UMMU" },
	{ UMMU_EVT_TECT_FETCH, "TECT_FETCH", "bus error while reading the entity table" },
	{ UMMU_EVT_BAD_TECT, "BAD_TECT", "the entity table entry is invalid" },
	{ UMMU_EVT_BAD_TOKENID, "BAD_TOKENID", "no such token id" },
	{ UMMU_EVT_TCT_FETCH, "TCT_FETCH", "bus error while reading the context table" },
	{ UMMU_EVT_BAD_TCT, "BAD_TCT", "the token id is not in use" },
	{ UMMU_EVT_A_PTW_EABT, "A_PTW_EABT", "bus error in a page table walk" },
	{ UMMU_EVT_A_TRANSLATION, "A_TRANSLATION", "the address is not mapped in the page table" },
	{ UMMU_EVT_A_ADDR_SIZE, "A_ADDR_SIZE", "the page table points beyond the address size" },
	{ UMMU_EVT_ACCESS, "ACCESS", "the page's access flag is clear" },
	{ UMMU_EVT_A_PERMISSION, "A_PERMISSION", "the page table forbids this access" },
	{ UMMU_EVT_TBU_CONFLICT, "TBU_CONFLICT", "conflicting TLB or PLB entries" },
	{ UMMU_EVT_CFG_CONFLICT, "CFG_CONFLICT", "conflicting cached configuration" },
	{ UMMU_EVT_VMS_FETCH, "VMS_FETCH", "bus error while reading the VM structure" },
	{ UMMU_EVT_P_PTW_EABT, "P_PTW_EABT", "bus error in a permission table walk" },
	{ UMMU_EVT_P_CFG_ERROR, "P_CFG_ERROR", "the permission table is set up wrongly" },
	{ UMMU_EVT_P_PERMISSION, "P_PERMISSION",
	  "not granted: no grant here, outside its range, wrong access type, or wrong token" },
	{ UMMU_EVT_EBIT_DENY, "EBIT_DENY", "closed to requests from the wire (E_bit)" },
};

static const struct event_text *find_event(uint8_t code)
{
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++)
		if (events[i].code == code)
			return &events[i];
	return NULL;
}

const char *accel_event_name(uint8_t event)
{
	const struct event_text *e = find_event(event);

	if (e)
		return e->name;
	return event ? "unknown event" : "no event";
}

const char *accel_strevent(uint8_t event)
{
	const struct event_text *e = find_event(event);

	if (e)
		return e->words;
	return event ? "unknown event" : "refused without an event";
}

const char *accel_strstatus(enum accel_status status)
{
	switch (status) {
	case ACCEL_ST_NONE:
		return "not finished";
	case ACCEL_ST_OK:
		return "done";
	case ACCEL_ST_FAULT:
		return "refused by the UMMU";
	case ACCEL_ST_BAD_OP:
		return "unknown operation";
	case ACCEL_ST_BAD_DESC:
		return "bad descriptor (length, alignment or reserved bits)";
	case ACCEL_ST_NOT_BOUND:
		return "token id is not bound to this queue";
	case ACCEL_ST_BUS_ERROR:
		return "bus error on the data";
	case ACCEL_ST_ABORTED:
		return "aborted (queue stopped, token id unbound, or fault not resolved)";
	case ACCEL_ST_TIMEOUT:
		return "timed out waiting for a page";
	}
	return "unknown status";
}

char *accel_describe(const struct accel_result *r, char *buf, size_t size)
{
	if (r->status == ACCEL_ST_FAULT)
		snprintf(buf, size, "%s at 0x%" PRIx64 " (operand %u, %s): %s; %" PRIu64 " bytes were done",
			 accel_strstatus(r->status), r->fault_addr, r->operand,
			 accel_event_name(r->event), accel_strevent(r->event), r->bytes_done);
	else
		snprintf(buf, size, "%s; %" PRIu64 " bytes were done", accel_strstatus(r->status),
			 r->bytes_done);
	return buf;
}
