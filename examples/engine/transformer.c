/*
 * transformer.c - a character-level transformer learns to continue a text; by default the GNU GPL,
 * which every Debian machine has.
 *
 * Token and position embeddings of 64, two blocks (causal attention of 4 heads, a dense part of 256
 * with gelu, layer norms before them), a last norm and a dense layer; windows of 64 characters;
 * Adam 2e-3, 8 epochs in batches of 32. The last tenth of the text is held out. Prints a
 * continuation at the end. Stated for /usr/share/common-licenses/GPL-3: a held-out loss of at most
 * 2.2 nats a character (Keras on the same text: see README.md).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common.h"

enum { CONTEXT = 64, SIZE = 64, HEADS = 4, MAX_TEXT = 4 << 20, SHOWN = 200 };

/* A text as numbers: bytes get their number in the order in which they first appear. */
typedef struct text_ids {
    int32_t *ids;
    int64_t count;
    int32_t number[256];
    char byte[256];
    int vocabulary;
} text_ids;

static int text_load(text_ids *text, const char *path, uni_error *err)
{
    memset(text, 0, sizeof *text);
    memset(text->number, -1, sizeof text->number);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return uni_error_set_errno(err, errno, "cannot open the text %s (--data FILE)", path);
    text->ids = malloc(MAX_TEXT * sizeof *text->ids);
    for (int c; text->ids != NULL && text->count < MAX_TEXT && (c = getc(file)) != EOF;) {
        if (text->number[c] < 0) {
            text->byte[text->vocabulary] = (char)c;
            text->number[c] = text->vocabulary++;
        }
        text->ids[text->count++] = text->number[c];
    }
    fclose(file);
    if (text->count < 20 * (CONTEXT + 1)) {
        free(text->ids);
        return uni_error_set(err, UNI_EINVAL, "%s has %lld characters, too few to learn from", path,
                             (long long)text->count);
    }
    return 0;
}

/* ---- the model ---- */

/* x + a learned vector for each place of the window. */
static uni_tensor *add_positions(void *context, uni_tape *tape, const uni_layer *layer,
                                 int num_inputs, uni_tensor *const *inputs)
{
    return uni_op_add(tape, inputs[0], uni_tape_parameter(tape, uni_layer_parameter(layer, 0)));
}

static uni_symbol *norm(uni_graph *graph, uni_symbol *x)
{
    return uni_graph_apply(
        graph, uni_layer_layer_normalization(UNI_OPTIONS(uni_norm_options, .epsilon = 1e-5f)), x);
}

static uni_symbol *block(uni_graph *graph, uni_symbol *x)
{
    uni_symbol *y = uni_graph_apply(
        graph,
        uni_layer_multi_head_attention(HEADS, SIZE / HEADS,
                                       UNI_OPTIONS(uni_attention_options, .causal = true)),
        norm(graph, x));
    x = uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ x, y });
    y = uni_graph_apply(
        graph, uni_layer_dense(4 * SIZE, UNI_OPTIONS(uni_dense_options, .activation = "gelu")),
        norm(graph, x));
    y = uni_graph_apply(graph, uni_layer_dense(SIZE, NULL), y);
    return uni_graph_apply_n(graph, uni_layer_add(), 2, (uni_symbol *[]){ x, y });
}

static int make(uni_model **out, int vocabulary, uni_error *err)
{
    uni_graph *graph = NULL;
    UNI_TRY(uni_graph_new(&graph, err));
    uni_spec places = { .dtype = UNI_F32, .ndim = 2, .dims = { CONTEXT, SIZE } };
    uni_spec sequence = { .dtype = UNI_F32, .ndim = 3, .dims = { -1, CONTEXT, SIZE } };
    uni_symbol *ids = uni_graph_input(graph, "ids", UNI_I32, 1, (const int64_t[]){ CONTEXT });
    uni_symbol *x = uni_graph_apply(graph, uni_layer_embedding(vocabulary, SIZE, NULL), ids);
    x = uni_graph_apply(graph, uni_layer_function(add_positions, NULL, &sequence, 1, &places), x);
    x = norm(graph, block(graph, block(graph, x)));
    x = uni_graph_apply(graph, uni_layer_dense(vocabulary, NULL), x);
    return uni_model_from_graph(out, "transformer", graph, 1, &ids, 1, &x, err);
}

static int compile(uni_model *model, uni_error *err)
{
    uni_loss *loss = NULL;
    uni_optimizer *adam = NULL;
    UNI_TRY(uni_loss_new(&loss, "sparse_categorical_crossentropy",
                         UNI_OPTIONS(uni_loss_options, .from_logits = true), err));
    int status = uni_optimizer_new(&adam, "adam",
                                   UNI_OPTIONS(uni_optimizer_options, .learning_rate = 2e-3), err);
    if (status < 0) {
        uni_loss_free(loss);
        return status;
    }
    return uni_model_compile(
        model, UNI_OPTIONS(uni_compile_options, .optimizer = adam, .loss = loss), err);
}

/* ---- windows of the text ---- */

typedef struct windows {
    int32_t *x, *y; /* (count, CONTEXT); y is one character further */
    int64_t count;
} windows;

static int cut(windows *out, const int32_t *ids, int64_t count, int64_t stride, uni_error *err)
{
    out->count = (count - CONTEXT - 1) / stride + 1;
    out->x = malloc((size_t)out->count * CONTEXT * sizeof *out->x);
    out->y = malloc((size_t)out->count * CONTEXT * sizeof *out->y);
    if (out->x == NULL || out->y == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for %lld windows of the text",
                             (long long)out->count);
    for (int64_t i = 0; i < out->count; i++) {
        memcpy(out->x + i * CONTEXT, ids + i * stride, CONTEXT * sizeof *ids);
        memcpy(out->y + i * CONTEXT, ids + i * stride + 1, CONTEXT * sizeof *ids);
    }
    return 0;
}

static uni_column window_column(const int32_t *ids, int64_t count)
{
    return uni_column_view(UNI_I32, 2, (const int64_t[]){ count, CONTEXT }, ids);
}

/* ---- training and a continuation ---- */

static int fit(uni_model *model, const windows *train, const windows *test,
               const example_options *o, uni_value **history, uni_error *err)
{
    uni_column x = window_column(train->x, train->count), y = window_column(train->y, train->count);
    uni_column test_x = window_column(test->x, test->count),
               test_y = window_column(test->y, test->count);
    return example_fit(o, model,
                       UNI_OPTIONS(uni_fit_options, .x = &x, .num_x = 1, .y = &y, .num_y = 1,
                                   .batch_size = 32, .validation_x = &test_x,
                                   .validation_y = &test_y, .epochs = o->epochs,
                                   .verbose = o->verbose),
                       history, err);
}

/* Always the likeliest next character; the window slides. */
static int continue_text(uni_model *model, const text_ids *text, const int32_t *begin,
                         uni_error *err)
{
    int32_t window[CONTEXT];
    uni_tape *tape = NULL;
    UNI_TRY(uni_tape_new(&tape, NULL, err));
    memcpy(window, begin, sizeof window);
    for (int i = 0; i < CONTEXT; i++)
        putchar(text->byte[window[i]]);
    fputs(" | ", stdout);
    int status = 0;
    for (int i = 0; i < SHOWN && status == 0; i++) {
        uni_tape_begin(tape, NULL);
        uni_column x = window_column(window, 1);
        uni_tensor *best =
            uni_op_argmax(tape, uni_model_call(model, tape, uni_tape_input_column(tape, &x)), -1);
        status = uni_tape_status(tape, err);
        if (status == 0) {
            memmove(window, window + 1, sizeof window - sizeof window[0]);
            window[CONTEXT - 1] = (int32_t)((const int64_t *)uni_tensor_data(best))[CONTEXT - 1];
            putchar(text->byte[window[CONTEXT - 1]]);
        }
    }
    putchar('\n');
    uni_tape_free(tape);
    return status;
}

static int run(const example_options *o, uni_error *err)
{
    uni_model *model = NULL;
    uni_value *history = NULL;
    windows train = { 0 }, test = { 0 };
    text_ids text;
    int status = 0;
    UNI_TRY(text_load(&text, o->data, err));
    int64_t head = text.count * 9 / 10;
    UNI_TRY_GOTO(cut(&train, text.ids, head, 16, err), done);
    UNI_TRY_GOTO(cut(&test, text.ids + head, text.count - head, CONTEXT, err), done);
    UNI_TRY_GOTO(make(&model, text.vocabulary, err), done);
    uni_model_set_seed(model, o->seed);
    UNI_TRY_GOTO(compile(model, err), done);
    UNI_TRY_GOTO(fit(model, &train, &test, o, &history, err), done);
    if (example_is_chief(o)) {
        UNI_TRY_GOTO(continue_text(model, &text, text.ids + head, err), done);
        printf("held-out loss: %.4f\n", example_last(history, "val_loss"));
    }
done:
    uni_value_free(history);
    uni_model_free(model);
    free(train.x);
    free(train.y);
    free(test.x);
    free(test.y);
    free(text.ids);
    return status;
}

int main(int argc, char **argv)
{
    return example_main(
        argc, argv, (example_options){ .data = "/usr/share/common-licenses/GPL-3", .epochs = 8 },
        "A small transformer that continues a text, character by character.", run);
}
