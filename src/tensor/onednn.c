/*
 * onednn.c - oneDNN's engine, stream and matrix product.
 *
 * dnnl_sgemm reaches about 90 of 112 GFLOP/s per core on the shapes that matter and needs no
 * primitive. It is always called for one thread: a product is cut into parts here, and the tape's
 * helpers (helpers.h) compute them. oneDNN's own threads are an OpenMP team, whose members spin for
 * milliseconds while the one they wait for has no core. Called by the tape's thread.
 */
#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "tensor/onednn_internal.h"

int uni__onednn_new(uni__onednn **out, uni_error *err)
{
    *out = NULL;
    uni__onednn *onednn = calloc(1, sizeof *onednn);
    if (!onednn)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the kernels' cache");
    dnnl_status_t status = dnnl_engine_create(&onednn->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&onednn->stream, onednn->engine, dnnl_stream_default_flags);
    if (status != dnnl_success) {
        uni__onednn_free(onednn);
        return uni_error_set(err, UNI_ERESOURCE, "oneDNN could not be started (its status %d)",
                             (int)status);
    }
#if defined(__x86_64__)
    onednn->own_products = !__builtin_cpu_supports("avx512f");
#endif
    *out = onednn;
    return 0;
}

void uni__onednn_free(uni__onednn *onednn)
{
    if (!onednn)
        return;
    while (onednn->entries) {
        conv_entry *next = onednn->entries->next;
        uni__conv_entry_free(onednn->entries);
        onednn->entries = next;
    }
    if (onednn->stream)
        dnnl_stream_destroy(onednn->stream);
    if (onednn->engine)
        dnnl_engine_destroy(onednn->engine);
    free(onednn);
}

void uni__onednn_begin(uni__onednn *onednn)
{
    onednn->site = 0;
}

size_t uni__onednn_bytes(const uni__onednn *onednn)
{
    return sizeof *onednn + onednn->bytes;
}

bool uni__onednn_ok(uni_tape *tape, dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return true;
    int code = status == dnnl_out_of_memory   ? UNI_ENOMEM
               : status == dnnl_unimplemented ? UNI_EUNSUPPORTED
                                              : UNI_EINVAL;
    uni_tape_fail(tape, code, "oneDNN refused %s (its status %d)", what, (int)status);
    return false;
}

int uni__onednn_threads(int threads)
{
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    return before;
}

/* c[m, n] (+)= a[m, k] b[k, n], in double: tests compare with it. */
static void product_reference(const uni__product *p)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0, before = p->c[i * p->ldc + j];
            for (int64_t l = 0; l < p->k; l++)
                sum += (double)p->a[p->transpose_a ? l * p->lda + i : i * p->lda + l] *
                       p->b[p->transpose_b ? j * p->ldb + l : l * p->ldb + j];
            p->c[i * p->ldc + j] =
                (float)(p->descent ? p->descent->keep * before - p->descent->rate * sum
                        : p->add   ? before + sum
                                   : sum);
        }
}

int uni__gemm_here(bool reference, const uni__product *p)
{
    if (p->m == 0 || p->n == 0)
        return 0;
    if (reference || p->k == 0) {
        product_reference(p);
        return 0;
    }
    float alpha = p->descent ? -p->descent->rate : 1.0f;
    float beta = p->descent ? p->descent->keep : p->add ? 1.0f : 0.0f;
    int before = uni__onednn_threads(1);
    int status = (int)dnnl_sgemm(p->transpose_a ? 'T' : 'N', p->transpose_b ? 'T' : 'N', p->m, p->n,
                                 p->k, alpha, p->a, p->lda, p->b, p->ldb, beta, p->c, p->ldc);
    uni__onednn_threads(before);
    return status;
}

bool uni__own_products(const uni_tape *tape)
{
    return tape->onednn->own_products;
}

/* For the gradient of a dense layer's input, with a kernel that does not fit the second-level
 * cache: our product prefetches the next rows while it computes. 128 columns and 16 to 128 samples:
 * oneDNN 53 to 71 GFLOP/s, ours 71 to 79; 256 columns 71 and 80. */
static bool streams_b(const uni__product *p)
{
    return p->transpose_b && !p->transpose_a && p->m <= 128 && p->k >= 64 && p->k <= 256 &&
           p->k == p->ldb && p->n * p->k >= 1 << 20;
}

/* oneDNN reads b without a copy although its rows are a multiple of 2 KB apart, so that all of them
 * map to a few sets of the cache: measured 57 to 66 GFLOP/s there, ours 70 to 87. Everywhere else,
 * except in streams_b, oneDNN is as good or better. */
static bool own_is_faster(const uni_tape *tape, const uni__product *p)
{
    if (!tape->onednn->own_products || !tape->kernels->gemm || p->m < 16 || p->n < 64)
        return false;
    if (streams_b(p))
        return true;
    if (p->transpose_b || p->ldb % 512)
        return false;
    return p->k >= 256 || (p->transpose_a && p->lda % 512 == 0 && p->m <= 1024 && p->k >= 16);
}

typedef struct own_task {
    const uni__tensor_kernels *kernels;
    const uni__product *product;
    float *scratch;
    size_t pieces;
} own_task;

/* Floats of b from one column of the product to the next. */
static int64_t column_step(const uni__product *p)
{
    return p->transpose_b ? p->ldb : 1;
}

/* One piece is a range of c's columns, a multiple of 16 except at the end. */
static void own_run(void *context, size_t begin, size_t end)
{
    const own_task *t = context;
    size_t panels = ((size_t)t->product->n + 15) / 16;
    for (size_t piece = begin; piece < end; piece++) {
        uni__product part = *t->product;
        int64_t first = (int64_t)(panels * piece / t->pieces * 16),
                last = (int64_t)(panels * (piece + 1) / t->pieces * 16);
        part.n = (last < part.n ? last : part.n) - first;
        part.b += column_step(&part) * first;
        part.c += first;
        t->kernels->gemm(&part, t->scratch + piece * UNI__GEMM_SCRATCH);
    }
}

static bool own_gemm(uni_tape *tape, const uni__product *p, int threads)
{
    size_t floats = (size_t)threads * UNI__GEMM_SCRATCH;
    own_task t = { tape->kernels, p, uni__scratch_floats(tape, floats), (size_t)threads };
    if (!t.scratch)
        return false;
    uni__for(tape, t.pieces, 1, threads > 1 ? 1e9 : 0, own_run, &t);
    uni__release_floats(tape, t.scratch, floats);
    return true;
}

/* ---- parts of a product ---- */

typedef enum cut_kind { CUT_ROWS, CUT_COLUMNS, CUT_DEPTH } cut_kind;

typedef struct parts_task {
    const uni__product *product;
    cut_kind cut;
    int count;
    bool reference;
    float *sums; /* CUT_DEPTH: of all parts but the first, m x n each */
    _Atomic int status;
} parts_task;

/* Both operands are read whole by every part, but for the one that the cut divides: cut the
 * larger side of the result, or along the sum when that is much longer than both. */
static cut_kind choose_cut(const uni__product *p)
{
    int64_t side = p->m > p->n ? p->m : p->n;
    if (p->k >= 16 * side)
        return CUT_DEPTH;
    return p->n >= p->m ? CUT_COLUMNS : CUT_ROWS;
}

/* Parts begin at multiples of what the kernels compute at a time. */
static const int64_t unit_of[] = { [CUT_ROWS] = 8, [CUT_COLUMNS] = 16, [CUT_DEPTH] = 64 };

static int64_t extent_of(const uni__product *p, cut_kind cut)
{
    return cut == CUT_ROWS ? p->m : cut == CUT_COLUMNS ? p->n : p->k;
}

static int most_parts(const uni__product *p, cut_kind cut, int threads)
{
    int64_t units = extent_of(p, cut) / unit_of[cut];
    return units < threads ? (units > 1 ? (int)units : 1) : threads;
}

static void run_part(void *context, int index)
{
    parts_task *t = context;
    uni__product part = *t->product;
    int64_t extent = extent_of(&part, t->cut), unit = unit_of[t->cut],
            units = (extent + unit - 1) / unit, begin = units * index / t->count * unit,
            end = units * (index + 1) / t->count * unit;
    end = end < extent ? end : extent;
    if (t->cut == CUT_ROWS) {
        part.m = end - begin;
        part.a += begin * (part.transpose_a ? 1 : part.lda);
        part.c += begin * part.ldc;
    } else if (t->cut == CUT_COLUMNS) {
        part.n = end - begin;
        part.b += begin * column_step(&part);
        part.c += begin;
    } else {
        part.k = end - begin;
        part.a += begin * (part.transpose_a ? part.lda : 1);
        part.b += begin * (part.transpose_b ? 1 : part.ldb);
    }
    if (t->cut == CUT_DEPTH && index > 0) {
        part.c = t->sums + (index - 1) * part.m * part.n;
        part.ldc = part.n;
        part.add = false;
        part.descent = NULL;
    }
    int status = uni__gemm_here(t->reference, &part);
    if (status)
        atomic_store(&t->status, status);
}

/* The first part went into c. */
static void add_sums(uni_tape *tape, const parts_task *t)
{
    const uni__product *p = t->product;
    float factor = p->descent ? -p->descent->rate : 1.0f;
    for (int part = 1; part < t->count; part++)
        for (int64_t i = 0; i < p->m; i++) {
            float *c = p->c + i * p->ldc;
            const float *sum = t->sums + ((part - 1) * p->m + i) * p->n;
            if (!p->descent)
                tape->kernels->add_in_place(c, sum, (size_t)p->n);
            for (int64_t j = 0; p->descent && j < p->n; j++)
                c[j] += factor * sum[j];
        }
}

static bool run_parts(uni_tape *tape, const uni__product *p, int threads)
{
    parts_task t = { .product = p, .cut = choose_cut(p), .reference = tape->reference };
    t.count = most_parts(p, t.cut, threads);
    size_t floats = t.cut == CUT_DEPTH ? (size_t)((t.count - 1) * p->m * p->n) : 0;
    if (floats > 0 && (t.sums = uni__scratch_floats(tape, floats)) == NULL)
        return false;
    uni__helpers_run(tape->helpers, t.count, run_part, &t);
    if (floats > 0) {
        add_sums(tape, &t);
        uni__release_floats(tape, t.sums, floats);
    }
    return uni__onednn_ok(tape, (dnnl_status_t)t.status, "a matrix product");
}

bool uni__gemm(uni_tape *tape, const uni__product *p)
{
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    int threads = uni__threads_for(tape, flops / 80.0);
    if (own_is_faster(tape, p))
        return own_gemm(tape, p, threads);
    if (threads > 1 && p->k > 0)
        return run_parts(tape, p, threads);
    return uni__onednn_ok(tape, (dnnl_status_t)uni__gemm_here(tape->reference, p),
                          "a matrix product");
}
