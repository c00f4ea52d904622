/*
 * onednn_conv.c - convolutions by oneDNN's direct kernels on channels-last activations.
 *
 * Format "any" for the activations would give a blocked layout that is up to 10 % faster in the
 * kernel. But it costs a conversion wherever anything else reads the tensor, and falls back to the
 * reference code for images of 1 or 3 channels. So x and y are nhwc, and only the kernel is
 * converted into the primitive's layout, at each call. The images of a batch are divided among the
 * tape's threads (helpers.h), each part with a primitive for one thread. Called by the tape's
 * thread.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "tensor/onednn_internal.h"

typedef struct layout {
    dnnl_memory_desc_t x, y, kernel, user_kernel, bias;
    dnnl_dims_t strides, dilations, pad_begin, pad_end;
} layout;

void uni__conv_entry_free(conv_entry *entry)
{
    dnnl_memory_t memories[] = { entry->x,           entry->y,    entry->kernel,
                                 entry->user_kernel, entry->bias, entry->scratchpad };
    for (size_t i = 0; i < sizeof memories / sizeof *memories; i++)
        if (memories[i])
            dnnl_memory_destroy(memories[i]);
    if (entry->main)
        dnnl_primitive_destroy(entry->main);
    if (entry->reorder)
        dnnl_primitive_destroy(entry->reorder);
    free(entry);
}

/* Kernel (kh, kw, in / groups, out): dims (o, i, h, w), or (g, o, i, h, w) when grouped. */
static dnnl_status_t describe_kernel(const uni__conv *c, layout *l)
{
    int64_t in = c->in / c->groups, out = c->out / c->groups;
    if (c->groups == 1) {
        dnnl_dims_t dims = { out, in, c->kernel_height, c->kernel_width };
        dnnl_dims_t strides = { 1, out, c->kernel_width * in * out, in * out };
        dnnl_status_t status =
            dnnl_memory_desc_init_by_strides(&l->user_kernel, 4, dims, dnnl_f32, strides);
        return status ? status
                      : dnnl_memory_desc_init_by_tag(&l->kernel, 4, dims, dnnl_f32,
                                                     dnnl_format_tag_any);
    }
    dnnl_dims_t dims = { c->groups, out, in, c->kernel_height, c->kernel_width };
    dnnl_dims_t strides = { out, 1, c->out, c->kernel_width * in * c->out, in * c->out };
    dnnl_status_t status =
        dnnl_memory_desc_init_by_strides(&l->user_kernel, 5, dims, dnnl_f32, strides);
    return status
               ? status
               : dnnl_memory_desc_init_by_tag(&l->kernel, 5, dims, dnnl_f32, dnnl_format_tag_any);
}

static dnnl_status_t describe(const uni__conv *c, layout *l)
{
    dnnl_dims_t x = { c->batch, c->in, c->height, c->width },
                y = { c->batch, c->out, c->out_height, c->out_width };
    dnnl_dims_t bias = { c->out };
    for (int i = 0; i < 2; i++) {
        l->strides[i] = c->stride[i];
        l->dilations[i] = c->dilation[i] - 1;
    }
    l->pad_begin[0] = c->pad_top;
    l->pad_begin[1] = c->pad_left;
    l->pad_end[0] = c->pad_bottom;
    l->pad_end[1] = c->pad_right;
    dnnl_status_t status = dnnl_memory_desc_init_by_tag(&l->x, 4, x, dnnl_f32, dnnl_nhwc);
    if (!status)
        status = dnnl_memory_desc_init_by_tag(&l->y, 4, y, dnnl_f32, dnnl_nhwc);
    if (!status)
        status = dnnl_memory_desc_init_by_tag(&l->bias, 1, bias, dnnl_f32, dnnl_a);
    return status ? status : describe_kernel(c, l);
}

static dnnl_status_t make_attributes(const uni__conv *c, bool forward, dnnl_primitive_attr_t *out)
{
    dnnl_status_t status = dnnl_primitive_attr_create(out);
    if (!status)
        status = dnnl_primitive_attr_set_scratchpad_mode(*out, dnnl_scratchpad_mode_user);
    if (!status && forward && c->relu) {
        dnnl_post_ops_t after = NULL;
        status = dnnl_post_ops_create(&after);
        if (!status)
            status = dnnl_post_ops_append_eltwise(after, 1.0f, dnnl_eltwise_relu, 0, 0);
        if (!status)
            status = dnnl_primitive_attr_set_post_ops(*out, after);
        dnnl_post_ops_destroy(after);
    }
    return status;
}

static dnnl_status_t make_description(const conv_key *key, const layout *l, dnnl_engine_t engine,
                                      dnnl_primitive_desc_t *out)
{
    dnnl_convolution_desc_t forward, backward;
    const dnnl_memory_desc_t *bias = key->has_bias ? &l->bias : NULL;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = make_attributes(&key->conv, key->kind == CONV_FORWARD, &attributes);
    if (!status)
        status = dnnl_dilated_convolution_forward_desc_init(
            &forward, dnnl_forward_training, dnnl_convolution_direct, &l->x, &l->kernel, bias,
            &l->y, l->strides, l->dilations, l->pad_begin, l->pad_end);
    if (!status)
        status = dnnl_primitive_desc_create(&hint, &forward, attributes, engine, NULL);
    if (status || key->kind == CONV_FORWARD) {
        *out = hint;
        dnnl_primitive_attr_destroy(attributes);
        return status;
    }
    if (key->kind == CONV_BACKWARD_DATA)
        status = dnnl_dilated_convolution_backward_data_desc_init(
            &backward, dnnl_convolution_direct, &l->x, &l->kernel, &l->y, l->strides, l->dilations,
            l->pad_begin, l->pad_end);
    else
        status = dnnl_dilated_convolution_backward_weights_desc_init(
            &backward, dnnl_convolution_direct, &l->x, &l->kernel, bias, &l->y, l->strides,
            l->dilations, l->pad_begin, l->pad_end);
    if (!status)
        status = dnnl_primitive_desc_create(out, &backward, attributes, engine, hint);
    dnnl_primitive_desc_destroy(hint);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

static dnnl_status_t make_reorder(conv_entry *entry, const dnnl_memory_desc_t *user,
                                  const dnnl_memory_desc_t *packed, bool to_user,
                                  dnnl_engine_t engine)
{
    if (dnnl_memory_desc_equal(user, packed))
        return dnnl_success;
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attributes);
    if (!status)
        status = dnnl_reorder_primitive_desc_create(&description, to_user ? packed : user, engine,
                                                    to_user ? user : packed, engine, attributes);
    if (!status)
        status = dnnl_primitive_create(&entry->reorder, description);
    if (description)
        dnnl_primitive_desc_destroy(description);
    dnnl_primitive_attr_destroy(attributes);
    return status;
}

static dnnl_status_t make_memories(conv_entry *entry, const layout *l,
                                   const_dnnl_primitive_desc_t description, dnnl_engine_t engine)
{
    bool weights = entry->key.kind == CONV_BACKWARD_WEIGHTS;
    const dnnl_memory_desc_t *kernel = dnnl_primitive_desc_query_md(
        description, weights ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    const dnnl_memory_desc_t *scratchpad =
        dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    entry->kernel_bytes = dnnl_memory_desc_get_size(kernel);
    entry->scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
    dnnl_status_t status = make_reorder(entry, &l->user_kernel, kernel, weights, engine);
    if (!status)
        status = dnnl_memory_create(&entry->x, &l->x, engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&entry->y, &l->y, engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&entry->bias, &l->bias, engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&entry->user_kernel, &l->user_kernel, engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&entry->kernel, kernel, engine, DNNL_MEMORY_NONE);
    if (!status)
        status = dnnl_memory_create(&entry->scratchpad, scratchpad, engine, DNNL_MEMORY_NONE);
    return status;
}

static conv_entry *make_entry(uni_tape *tape, const conv_key *key)
{
    layout l;
    dnnl_primitive_desc_t description = NULL;
    conv_entry *entry = calloc(1, sizeof *entry);
    if (!entry) {
        uni_tape_fail(tape, UNI_ENOMEM, "no memory for a convolution");
        return NULL;
    }
    entry->key = *key;
    dnnl_status_t status = describe(&key->conv, &l);
    if (!status)
        status = make_description(key, &l, tape->onednn->engine, &description);
    if (!status)
        status = dnnl_primitive_create(&entry->main, description);
    if (!status)
        status = make_memories(entry, &l, description, tape->onednn->engine);
    if (description)
        dnnl_primitive_desc_destroy(description);
    if (!uni__onednn_ok(tape, status, "a convolution")) {
        uni__conv_entry_free(entry);
        return NULL;
    }
    entry->next = tape->onednn->entries;
    tape->onednn->entries = entry;
    tape->onednn->bytes += sizeof *entry;
    return entry;
}

static conv_entry *find_entry(uni_tape *tape, conv_kind kind, const uni__conv *conv, bool has_bias,
                              int threads, int part)
{
    uni__onednn *cache = tape->onednn;
    conv_key key = {
        .kind = kind, .threads = threads, .part = part, .has_bias = has_bias, .conv = *conv
    };
    conv_entry **site = cache->site < MAX_SITES ? &cache->sites[cache->site++] : NULL;
    if (site && *site && memcmp(&(*site)->key, &key, sizeof key) == 0)
        return *site;
    conv_entry *entry = cache->entries;
    while (entry && memcmp(&entry->key, &key, sizeof key) != 0)
        entry = entry->next;
    if (!entry)
        entry = make_entry(tape, &key);
    if (site)
        *site = entry;
    return entry;
}

static double conv_flops(const uni__conv *c)
{
    return 2.0 * (double)(c->batch * c->out_height * c->out_width * c->out) *
           (double)(c->kernel_height * c->kernel_width * c->in / c->groups);
}

static dnnl_status_t point(dnnl_memory_t memory, const void *data)
{
    return dnnl_memory_set_data_handle(memory, (void *)data);
}

static dnnl_status_t run_reorder(uni__onednn *cache, conv_entry *entry, dnnl_memory_t from,
                                 dnnl_memory_t to)
{
    dnnl_exec_arg_t arguments[] = { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } };
    return dnnl_primitive_execute(entry->reorder, cache->stream, 2, arguments);
}

/* ---- parts: some images each ---- */

typedef struct pointers {
    const float *x, *y, *kernel, *bias;
} pointers;

typedef struct conv_part {
    conv_entry *entry;
    pointers at;
    float *sums; /* gradients of weights, of all parts but the first: kernel, then bias */
    void *scratchpad, *packed;
} conv_part;

#define MOST_PARTS 64

typedef struct conv_task {
    conv_kind kind;
    uni__onednn *cache;
    int count;
    conv_part parts[MOST_PARTS];
    _Atomic int status;
} conv_task;

static void run_part(void *context, int index)
{
    static const int arguments_of[3][4] = {
        { DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS },
        { DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, 0 },
        { DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_BIAS },
    };
    conv_task *task = context;
    const conv_part *part = &task->parts[index];
    const pointers *p = &part->at;
    conv_entry *entry = part->entry;
    const int *names = arguments_of[task->kind];
    bool weights = task->kind == CONV_BACKWARD_WEIGHTS;
    dnnl_exec_arg_t arguments[] = { { names[0], entry->x },
                                    { names[1], entry->kernel },
                                    { names[2], entry->y },
                                    { DNNL_ARG_SCRATCHPAD, entry->scratchpad },
                                    { names[3], entry->bias } };
    int before = uni__onednn_threads((int)entry->key.threads);
    dnnl_status_t status = point(entry->x, p->x) | point(entry->y, p->y) |
                           point(entry->scratchpad, part->scratchpad) |
                           point(entry->kernel, part->packed) |
                           point(entry->user_kernel, p->kernel) | point(entry->bias, p->bias);
    if (!status && entry->reorder && !weights)
        status = run_reorder(task->cache, entry, entry->user_kernel, entry->kernel);
    if (!status)
        status =
            dnnl_primitive_execute(entry->main, task->cache->stream, p->bias ? 5 : 4, arguments);
    if (!status && entry->reorder && weights)
        status = run_reorder(task->cache, entry, entry->kernel, entry->user_kernel);
    uni__onednn_threads(before);
    if (status)
        atomic_store(&task->status, (int)status);
}

static size_t kernel_floats(const uni__conv *c)
{
    return (size_t)(c->kernel_height * c->kernel_width * (c->in / c->groups) * c->out);
}

/* Finds the entry and the memory of one part: images [begin, end). */
static bool prepare_part(uni_tape *tape, conv_task *task, int index, const uni__conv *conv,
                         int threads, const pointers *p)
{
    conv_part *part = &task->parts[index];
    uni__conv some = *conv;
    int64_t begin = conv->batch * index / task->count,
            end = conv->batch * (index + 1) / task->count;
    size_t kernel = kernel_floats(conv), bias = (size_t)conv->out;
    some.batch = end - begin;
    part->at = *p;
    part->at.x += begin * conv->height * conv->width * conv->in;
    part->at.y += begin * conv->out_height * conv->out_width * conv->out;
    if (task->kind == CONV_BACKWARD_WEIGHTS && index > 0) {
        if (!(part->sums = uni__scratch_floats(tape, kernel + bias)))
            return false;
        part->at.kernel = part->sums;
        part->at.bias = p->bias ? part->sums + kernel : NULL;
    }
    conv_entry *entry = part->entry =
        find_entry(tape, task->kind, &some, p->bias != NULL, threads, index);
    part->scratchpad = entry ? uni__scratch(tape, entry->scratchpad_bytes) : NULL;
    part->packed = entry && entry->reorder ? uni__scratch(tape, entry->kernel_bytes)
                                           : (void *)(uintptr_t)part->at.kernel;
    return entry && part->scratchpad && part->packed;
}

static void finish_parts(uni_tape *tape, conv_task *task, const uni__conv *conv, const pointers *p)
{
    size_t kernel = kernel_floats(conv), bias = (size_t)conv->out;
    for (int i = task->count - 1; i >= 0; i--) {
        conv_part *part = &task->parts[i];
        if (part->entry->reorder)
            uni__release(tape, part->packed, part->entry->kernel_bytes);
        uni__release(tape, part->scratchpad, part->entry->scratchpad_bytes);
    }
    for (int i = 1; i < task->count && task->kind == CONV_BACKWARD_WEIGHTS; i++) {
        float *sums = task->parts[i].sums;
        tape->kernels->add_in_place((float *)(uintptr_t)p->kernel, sums, kernel);
        if (p->bias)
            tape->kernels->add_in_place((float *)(uintptr_t)p->bias, sums + kernel, bias);
        uni__release_floats(tape, sums, kernel + bias);
    }
}

/* With fewer images than threads, oneDNN's own threads share the rows of one. */
static bool run(uni_tape *tape, conv_kind kind, const uni__conv *conv, const pointers *p)
{
    int threads = uni__threads_for(tape, conv_flops(conv) / 80.0);
    conv_task task = { .kind = kind, .cache = tape->onednn, .count = 1 };
    if (threads > 1 && conv->batch >= threads && threads <= MOST_PARTS) {
        task.count = threads;
        threads = 1;
    }
    int before = uni__onednn_threads(threads);
    bool good = true;
    for (int i = 0; i < task.count && good; i++)
        good = prepare_part(tape, &task, i, conv, threads, p);
    uni__onednn_threads(before);
    if (!good)
        return false;
    uni__helpers_run(tape->helpers, task.count, run_part, &task);
    finish_parts(tape, &task, conv, p);
    return uni__onednn_ok(tape, (dnnl_status_t)task.status, "a convolution");
}

bool uni__conv_forward(uni_tape *tape, const uni__conv *conv, const float *x, const float *kernel,
                       const float *bias, float *y)
{
    if (uni__thin_fits(tape, conv))
        return uni__thin_forward(tape, conv, x, kernel, bias, y);
    if (!tape->reference && uni__winograd_fits(tape, conv))
        return uni__winograd_forward(tape, conv, x, kernel, bias, y);
    if (!tape->reference)
        return run(tape, CONV_FORWARD, conv, &(pointers){ x, y, kernel, bias });
    uni__conv_forward_reference(conv, x, kernel, bias, y);
    return true;
}

bool uni__conv_backward_data(uni_tape *tape, const uni__conv *conv, const float *kernel,
                             const float *dy, float *dx)
{
    if (!tape->reference && uni__winograd_fits(tape, conv))
        return uni__winograd_backward_data(tape, conv, kernel, dy, dx);
    if (!tape->reference)
        return run(tape, CONV_BACKWARD_DATA, conv, &(pointers){ dx, dy, kernel, NULL });
    uni__conv_backward_data_reference(conv, kernel, dy, dx);
    return true;
}

bool uni__conv_backward_weights(uni_tape *tape, const uni__conv *conv, const float *x,
                                const float *dy, float *dkernel, float *dbias)
{
    if (!tape->reference && !dbias && uni__winograd_fits(tape, conv))
        return uni__winograd_backward_weights(tape, conv, x, dy, dkernel);
    if (!tape->reference)
        return run(tape, CONV_BACKWARD_WEIGHTS, conv, &(pointers){ x, dy, dkernel, dbias });
    uni__conv_backward_weights_reference(conv, x, dy, dkernel, dbias);
    return true;
}
