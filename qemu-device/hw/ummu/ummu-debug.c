/*
 * UMMU: introspection and fault injection as QOM properties.
 *
 * SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Read with qom-get on the bus function: counters (and each by its name),
 * faults, registers, queues, caches, kv, pending-stalls, tid-state,
 * translate-result.  Set with qom-set: query-tag and query-tid (for tid-state),
 * translate-request, benchmark-request, inject-*.  Nothing read here changes
 * the device or its counters; a benchmark does, it makes real look-ups.
 */
#include "qemu/osdep.h"
#include "qapi/error.h"
#include "qapi/qapi-visit-common.h"
#include "qapi/visitor.h"
#include "qemu/cutils.h"
#include "qemu/keyval.h"
#include "ummu-xlate.h"
#include "trace.h"

/* ---- visiting dictionaries ---------------------------------------------- */

typedef void UmmuVisitFn(Visitor *v, UmmuState *s);

static void put_u64(Visitor *v, const char *name, uint64_t value)
{
    visit_type_uint64(v, name, &value, &error_abort);
}

static void put_str(Visitor *v, const char *name, const char *value)
{
    g_autofree char *copy = g_strdup(value);

    visit_type_str(v, name, &copy, &error_abort);
}

static void visit_counters(Visitor *v, UmmuState *s)
{
#define PUT_COUNTER(member, name) put_u64(v, name, s->cnt.member);
    UMMU_COUNTER_LIST(PUT_COUNTER)
#undef PUT_COUNTER
}

static void visit_faults(Visitor *v, UmmuState *s)
{
    unsigned code;

    for (code = 0; code < ARRAY_SIZE(s->cnt.faults); code++) {
        if (s->cnt.faults[code]) {
            put_u64(v, ummu_event_name(code), s->cnt.faults[code]);
        }
    }
}

static void visit_registers(Visitor *v, UmmuState *s)
{
    const char *name;
    uint64_t value;
    unsigned i;

    for (i = 0; (name = ummu_reg_describe(s, i, &value)); i++) {
        put_u64(v, name, value);
    }
}

static void visit_caches(Visitor *v, UmmuState *s)
{
    uint32_t cfg = 0, tlb = 0, plb = 0;

    ummu_cache_fill(s, &cfg, &tlb, &plb);
    put_u64(v, "cfg-used", cfg);
    put_u64(v, "cfg-entries", s->cfg.cfg_cache_entries);
    put_u64(v, "tlb-used", tlb);
    put_u64(v, "tlb-entries", s->cfg.tlb_entries);
    put_u64(v, "plb-used", plb);
    put_u64(v, "plb-entries", s->cfg.plb_entries);
}

static void visit_one_mcmdq(Visitor *v, UmmuState *s, unsigned qi)
{
    g_autofree char *name = g_strdup_printf("mcmdq%u", qi);
    const UmmuMcmdq *q = &s->mcmdq[qi];

    visit_start_struct(v, name, NULL, 0, &error_abort);
    put_u64(v, "base", q->base);
    put_u64(v, "pi", q->pi);
    put_u64(v, "ci", q->ci);
    put_u64(v, "sync-waits", s->mcmdq_pending[qi / 64] >> (qi % 64) & 1);
    visit_end_struct(v, NULL);
}

static void visit_one_uqueue(Visitor *v, UmmuState *s, uint32_t qid)
{
    static const char *const states[UMMU_UQ_STATES] = {
        [UMMU_UQ_IDLE] = "idle", [UMMU_UQ_LIVE] = "live",
        [UMMU_UQ_BLOCKED] = "blocked", [UMMU_UQ_ERROR] = "error",
    };
    g_autofree char *name = g_strdup_printf("user%u", qid);
    const UmmuUqueue *q = &s->uq[qid];

    visit_start_struct(v, name, NULL, 0, &error_abort);
    put_str(v, "state", states[q->state]);
    put_u64(v, "ucmdq-pi", q->pi);
    put_u64(v, "ucmdq-ci", q->ci);
    put_u64(v, "ucplq-pi", q->cpl_pi);
    put_u64(v, "ucplq-ci", q->cpl_ci);
    visit_end_struct(v, NULL);
}

/* Queues that were ever set up. */
static void visit_queues(Visitor *v, UmmuState *s)
{
    static const UmmuUqueue unused;
    uint32_t i;

    for (i = 0; i < (1u << s->cfg.mcmdq_log2); i++) {
        if (s->mcmdq[i].base || s->mcmdq[i].pi || s->mcmdq[i].ci) {
            visit_one_mcmdq(v, s, i);
        }
    }
    for (i = 0; s->uq && i < s->cfg.user_queues; i++) {
        if (memcmp(&s->uq[i], &unused, sizeof(unused))) {
            visit_one_uqueue(v, s, i);
        }
    }
}

/* EID as 32 hexadecimal digits -> tag. */
static void visit_kv(Visitor *v, UmmuState *s)
{
    GHashTableIter it;
    gpointer p;

    if (!s->kv) {
        return;
    }
    g_hash_table_iter_init(&it, s->kv);
    while (g_hash_table_iter_next(&it, NULL, &p)) {
        const UmmuKvEntry *e = p;
        g_autofree char *name = g_strdup_printf("%016" PRIx64 "%016" PRIx64,
                                                e->eid_hi, e->eid_lo);

        visit_start_struct(v, name, NULL, 0, &error_abort);
        put_u64(v, "tag", e->tag);
        put_u64(v, "kv-index", e->kv_index);
        visit_end_struct(v, NULL);
    }
}

static void put_entry(Visitor *v, const char *what, uint8_t refusal,
                      const uint64_t words[8])
{
    unsigned i;

    visit_start_struct(v, what, NULL, 0, &error_abort);
    put_str(v, "refused", refusal ? ummu_event_name(refusal) : "");
    for (i = 0; i < 8; i++) {
        g_autofree char *name = g_strdup_printf("word%u", i);

        put_u64(v, name, words[i]);
    }
    visit_end_struct(v, NULL);
}

static void put_entity(Visitor *v, const UmmuTecte *te)
{
    put_u64(v, "st-mode", te->mode);
    put_u64(v, "stage1", te->has_s1);
    put_u64(v, "stage2", te->has_s2);
    put_u64(v, "el2", te->regime == UMMU_REGIME_EL2);
    put_u64(v, "vmid", te->vmid);
    put_u64(v, "tct", te->tct_ptr);
    put_u64(v, "tct-log2", te->tct_num);
    put_u64(v, "mapt-en", te->mapt_en);
    put_u64(v, "may-stall", te->stall_ok);
}

static void put_context(Visitor *v, const UmmuTcte *tc)
{
    put_u64(v, "asid", tc->asid);
    put_u64(v, "e-bit", tc->e_bit);
    put_u64(v, "stalls", tc->fbs);
    put_u64(v, "records", tc->fbr);
    put_u64(v, "walk-disabled", tc->mattwd);
    put_u64(v, "matt-bypass", tc->bypass);
    put_u64(v, "matt", tc->s1.base);
    put_u64(v, "matt-input-bits", tc->s1.insize);
    put_u64(v, "matt-output-bits", tc->s1.outsize);
    put_u64(v, "matt-granule", tc->bypass ? 0 : 1ull << tc->s1.gran);
    put_u64(v, "big-endian", tc->s1.big);
    put_u64(v, "mapt-en", tc->mapt_en);
    put_u64(v, "mapt-table", tc->mapt_table);
    put_u64(v, "mapt", tc->bba);
    put_u64(v, "mapt-blocks", tc->bta);
}

/* What a request of (query-tag, query-tid) would be decided by. */
static void visit_tid_state(Visitor *v, UmmuState *s)
{
    uint64_t te_words[8] = { 0 }, tc_words[8] = { 0 };
    uint8_t te_bad = ummu_peek_tecte(s, s->query.tag, te_words);
    uint8_t tc_bad = ummu_peek_tcte(s, s->query.tag, s->query.tid, tc_words);
    UmmuTecte te;
    UmmuTcte tc;

    put_u64(v, "tag", s->query.tag);
    put_u64(v, "tid", s->query.tid);
    put_entry(v, "tecte", te_bad, te_words);
    put_entry(v, "tcte", tc_bad, tc_words);
    if (te_bad) {
        return;
    }
    ummu_tecte_decode(s, te_words, &te);
    visit_start_struct(v, "entity", NULL, 0, &error_abort);
    put_entity(v, &te);
    visit_end_struct(v, NULL);
    if (tc_bad) {
        return;
    }
    ummu_tcte_decode(s, &te, tc_words, &tc);
    visit_start_struct(v, "context", NULL, 0, &error_abort);
    put_context(v, &tc);
    visit_end_struct(v, NULL);
}

static void visit_translation(Visitor *v, UmmuState *s)
{
    static const char *const status[] = {
        [UMMU_RES_OK] = "ok", [UMMU_RES_FAULT] = "fault",
        [UMMU_RES_RAZWI] = "razwi", [UMMU_RES_STALLED] = "stalled",
        [UMMU_RES_RETRY] = "retry",
    };
    const UmmuResult *r = &s->query.result;

    put_str(v, "status", s->query.valid ? status[r->status] : "none");
    put_str(v, "event", r->event ? ummu_event_name(r->event) : "");
    put_u64(v, "pa", r->pa);
    put_u64(v, "len", r->len);
    put_u64(v, "fault-addr", r->fault_addr);
}

static void visit_benchmark(Visitor *v, UmmuState *s)
{
    put_u64(v, "lookups", s->query.bench.lookups);
    put_u64(v, "ok", s->query.bench.ok);
    put_u64(v, "ns", s->query.bench.ns);
}

static const struct {
    const char *name;
    UmmuVisitFn *fn;
} dictionaries[] = {
    { "counters", visit_counters },
    { "faults", visit_faults },
    { "registers", visit_registers },
    { "caches", visit_caches },
    { "queues", visit_queues },
    { "kv", visit_kv },
    { "tid-state", visit_tid_state },
    { "translate-result", visit_translation },
    { "benchmark-result", visit_benchmark },
};

static void ummu_get_dictionary(Object *obj, Visitor *v, const char *name,
                                void *opaque, Error **errp)
{
    UmmuVisitFn *fn = *(UmmuVisitFn *const *)opaque;

    if (!visit_start_struct(v, name, NULL, 0, errp)) {
        return;
    }
    fn(v, UMMU_CORE(obj));
    visit_check_struct(v, errp);
    visit_end_struct(v, NULL);
}

/* ---- translate without side effects ------------------------------------- */

bool ummu_request_u64(const QDict *d, const char *key, uint64_t max,
                      uint64_t *value, Error **errp)
{
    const char *text = qdict_get_try_str(d, key);

    if (!text) {
        return true;
    }
    /* The C library would take "-1" for the largest number. */
    if (*text == '-' || qemu_strtou64(text, NULL, 0, value) || *value > max) {
        error_setg(errp, "request: %s=%s is not a number up to 0x%" PRIx64,
                   key, text, max);
        return false;
    }
    return true;
}

static bool request_access(const QDict *d, UmmuRequest *req, Error **errp)
{
    const char *text = qdict_get_try_str(d, "access");

    if (!text || !strcmp(text, "read")) {
        req->access = UMMU_ACCESS_READ;
    } else if (!strcmp(text, "write")) {
        req->access = UMMU_ACCESS_WRITE;
    } else if (!strcmp(text, "atomic")) {
        req->access = UMMU_ACCESS_ATOMIC;
    } else {
        error_setg(errp, "request: access=%s is none of read, write, atomic",
                   text);
        return false;
    }
    return true;
}

static bool request_keys_ok(const QDict *d, Error **errp)
{
    static const char *const known[] = {
        "eid", "eid-hi", "tid", "token", "e-bit", "priv", "inst", "access",
        "uba", "len", NULL
    };
    const QDictEntry *e;

    for (e = qdict_first(d); e; e = qdict_next(d, e)) {
        if (!g_strv_contains(known, qdict_entry_key(e))) {
            error_setg(errp, "request: unknown key '%s'", qdict_entry_key(e));
            return false;
        }
    }
    return true;
}

bool ummu_request_parse(const QDict *d, UmmuRequest *req, Error **errp)
{
    uint64_t tid = 0, token = 0, e_bit = 0, priv = 1, inst = 0, len = 1;

    *req = (UmmuRequest) { 0 };
    if (!request_keys_ok(d, errp) || !request_access(d, req, errp) ||
        !ummu_request_u64(d, "eid", UINT64_MAX, &req->eid_lo, errp) ||
        !ummu_request_u64(d, "eid-hi", UINT64_MAX, &req->eid_hi, errp) ||
        !ummu_request_u64(d, "tid", MAKE_64BIT_MASK(0, UMMU_TID_BITS), &tid,
                          errp) ||
        !ummu_request_u64(d, "token", UINT32_MAX, &token, errp) ||
        !ummu_request_u64(d, "e-bit", 1, &e_bit, errp) ||
        !ummu_request_u64(d, "priv", 1, &priv, errp) ||
        !ummu_request_u64(d, "inst", 1, &inst, errp) ||
        !ummu_request_u64(d, "uba", UINT64_MAX, &req->uba, errp) ||
        !ummu_request_u64(d, "len", UINT64_MAX, &len, errp)) {
        return false;
    }
    req->tid = tid;
    req->token = token;
    req->token_valid = qdict_haskey(d, "token");
    req->e_bit = e_bit;
    req->privileged = priv;
    req->instruction = inst;
    req->len = len;
    req->no_stall = true;
    return true;
}

/* "eid=0x100,tid=5,uba=0x1000,len=64,access=write,token=7,e-bit=1" */
static void ummu_set_translate(Object *obj, const char *text, Error **errp)
{
    g_autoptr(QDict) d = keyval_parse(text, NULL, NULL, errp);
    UmmuState *s = UMMU_CORE(obj);
    UmmuRequest req;

    memset(&s->query.result, 0, sizeof(s->query.result));
    s->query.valid = false;
    if (!d || !ummu_request_parse(d, &req, errp)) {
        return;
    }
    if (!s->dma_as) {
        error_setg(errp, "translate-request: the device is not realized");
        return;
    }
    ummu_resolve(s, NULL, &req, true, &s->query.result, NULL);
    s->query.valid = true;
}

/* ---- the rest ----------------------------------------------------------- */

static char *ummu_get_stalls(Object *obj, Error **errp)
{
    UmmuState *s = UMMU_CORE(obj);
    GString *out = g_string_new(NULL);

    if (s->stalls) {
        ummu_stall_describe(s, out);
    }
    return g_string_free(out, FALSE);
}

static bool ummu_get_eventq_full(Object *obj, Error **errp)
{
    return UMMU_CORE(obj)->inject.eventq_full;
}

static void ummu_set_eventq_full(Object *obj, bool value, Error **errp)
{
    UMMU_CORE(obj)->inject.eventq_full = value;
}

static const struct {
    const char *name;
    size_t offset;
} words64[] = {
    { "inject-table-error-nth", offsetof(UmmuState, inject.table_error_nth) },
    { "inject-resume-delay-ns", offsetof(UmmuState, inject.resume_delay_ns) },
    { "inject-sync-delay-ns", offsetof(UmmuState, inject.sync_delay_ns) },
}, words32[] = {
    { "inject-table-error-kinds",
      offsetof(UmmuState, inject.table_error_kinds) },
    { "inject-drop-resumes", offsetof(UmmuState, inject.drop_resumes) },
    { "query-tag", offsetof(UmmuState, query.tag) },
    { "query-tid", offsetof(UmmuState, query.tid) },
};

/* Each counter by its own name as well, for scripts that want one number. */
static const struct {
    const char *name;
    size_t offset;
} counters[] = {
#define COUNTER_ROW(member, name) { name, offsetof(UmmuState, cnt.member) },
    UMMU_COUNTER_LIST(COUNTER_ROW)
#undef COUNTER_ROW
};

void ummu_debug_init(Object *core)
{
    UmmuState *s = UMMU_CORE(core);
    unsigned i;

    for (i = 0; i < ARRAY_SIZE(dictionaries); i++) {
        object_property_add(core, dictionaries[i].name, "struct",
                            ummu_get_dictionary, NULL, NULL,
                            (void *)&dictionaries[i].fn);
    }
    for (i = 0; i < ARRAY_SIZE(words64); i++) {
        object_property_add_uint64_ptr(core, words64[i].name,
                                       (void *)((char *)s + words64[i].offset),
                                       OBJ_PROP_FLAG_READWRITE);
    }
    for (i = 0; i < ARRAY_SIZE(words32); i++) {
        object_property_add_uint32_ptr(core, words32[i].name,
                                       (void *)((char *)s + words32[i].offset),
                                       OBJ_PROP_FLAG_READWRITE);
    }
    for (i = 0; i < ARRAY_SIZE(counters); i++) {
        object_property_add_uint64_ptr(core, counters[i].name,
                                       (void *)((char *)s + counters[i].offset),
                                       OBJ_PROP_FLAG_READ);
    }
    object_property_add_str(core, "pending-stalls", ummu_get_stalls, NULL);
    object_property_add_str(core, "translate-request", NULL,
                            ummu_set_translate);
    object_property_add_str(core, "benchmark-request", NULL,
                            ummu_set_benchmark);
    object_property_add_bool(core, "inject-eventq-full", ummu_get_eventq_full,
                             ummu_set_eventq_full);
}

void ummu_debug_alias(Object *bus_dev, Object *core)
{
    static const char *const others[] = {
        "pending-stalls", "translate-request", "benchmark-request",
        "inject-eventq-full",
    };
    unsigned i;

    for (i = 0; i < ARRAY_SIZE(dictionaries); i++) {
        object_property_add_alias(bus_dev, dictionaries[i].name, core,
                                  dictionaries[i].name);
    }
    for (i = 0; i < ARRAY_SIZE(words64); i++) {
        object_property_add_alias(bus_dev, words64[i].name, core,
                                  words64[i].name);
    }
    for (i = 0; i < ARRAY_SIZE(words32); i++) {
        object_property_add_alias(bus_dev, words32[i].name, core,
                                  words32[i].name);
    }
    for (i = 0; i < ARRAY_SIZE(counters); i++) {
        object_property_add_alias(bus_dev, counters[i].name, core,
                                  counters[i].name);
    }
    for (i = 0; i < ARRAY_SIZE(others); i++) {
        object_property_add_alias(bus_dev, others[i], core, others[i]);
    }
}
