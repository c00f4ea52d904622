/*
 * tensorboard.c - TensorBoard in Keras's layout: DIR/train and DIR/validation; tags epoch_loss,
 * epoch_accuracy ... (for validation without "val_"), epoch_learning_rate, optionally batch_loss
 * ..., evaluation_loss_vs_iterations; histograms of the weights; and the model's graph as Keras's
 * own config. src/track writes the records. Fit's thread; files are complete after every epoch.
 */
#include "nn/callbacks/callback.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nn/shared.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "track/tensorboard_file.h"

#define BUCKETS 30

struct board {
    char *directory;
    int histogram_freq;
    bool every_batch;
    uni__event_file train, validation;
    bool train_open, validation_open, in_fit;
    int64_t batches; /* trained since the beginning of fit */
    uint64_t batch_begun;
};

static int open_file(struct board *board, const char *name, uni__event_file *file, bool *is_open,
                     uni_error *err)
{
    if (*is_open)
        return 0;
    char *path = uni__path_join(board->directory, name, NULL);
    if (path == NULL)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the path of an event file");
    *file = (uni__event_file){ .fd = -1 };
    int status = uni__event_file_open(file, path, err);
    *is_open = status == 0;
    if (status < 0)
        uni__event_file_close(file);
    free(path);
    return status;
}

static int write_value(uni__event_file *file, Uni__Tb__Value *value, int64_t step, uni_error *err)
{
    Uni__Tb__Event event = UNI__TB__EVENT__INIT;
    Uni__Tb__Summary summary = UNI__TB__SUMMARY__INIT;
    summary.n_value = 1;
    summary.value = &value;
    event.wall_time = uni__wall_seconds();
    event.step = step;
    event.what_case = UNI__TB__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    return uni__event_file_add(file, &event, err);
}

static int write_scalar(uni__event_file *file, const char *prefix, const char *name,
                        const char *suffix, double number, int64_t step, uni_error *err)
{
    char tag[200];
    snprintf(tag, sizeof tag, "%s%s%s", prefix, name, suffix);
    Uni__Tb__Value value = UNI__TB__VALUE__INIT;
    value.tag = tag;
    value.value_case = UNI__TB__VALUE__VALUE_SIMPLE_VALUE;
    value.simple_value = (float)number;
    return write_value(file, &value, step, err);
}

/* ---- histograms ---- */

struct histogram_context {
    struct board *board;
    int epoch;
};

/* 30 buckets of equal width between minimum and maximum, as in tf.summary.histogram. */
static void fill_buckets(const float *data, size_t count, Uni__Tb__Histogram *histogram)
{
    histogram->min = histogram->max = count > 0 ? (double)data[0] : 0;
    for (size_t i = 0; i < count; i++) {
        double x = (double)data[i];
        histogram->min = fmin(histogram->min, x);
        histogram->max = fmax(histogram->max, x);
        histogram->sum += x;
        histogram->sum_squares += x * x;
    }
    histogram->num = (double)count;
    double width = (histogram->max - histogram->min) / BUCKETS;
    width = width > 0 ? width : 1e-6;
    for (int i = 0; i < BUCKETS; i++)
        histogram->bucket_limit[i] = i + 1 < BUCKETS
                                         ? histogram->min + width * (i + 1)
                                         : fmax(histogram->max, histogram->min + width * BUCKETS);
    for (size_t i = 0; i < count; i++) {
        double place = floor(((double)data[i] - histogram->min) / width);
        histogram->bucket[place >= 0 && place < BUCKETS ? (int)place : BUCKETS - 1]++;
    }
}

static int write_histogram(void *context, const uni_layer *layer, const uni__layer_slot *slot,
                           uni_error *err)
{
    struct histogram_context *where = context;
    double limits[BUCKETS], counts[BUCKETS] = { 0 };
    Uni__Tb__Histogram histogram = UNI__TB__HISTOGRAM__INIT;
    Uni__Tb__Value value = UNI__TB__VALUE__INIT;
    char tag[300];
    snprintf(tag, sizeof tag, "%s/histogram", uni_parameter_info_of(slot->parameter)->name);
    histogram.n_bucket_limit = histogram.n_bucket = BUCKETS;
    histogram.bucket_limit = limits;
    histogram.bucket = counts;
    fill_buckets(uni_parameter_data(slot->parameter), uni_parameter_info_of(slot->parameter)->size,
                 &histogram);
    value.tag = tag;
    value.value_case = UNI__TB__VALUE__VALUE_HISTO;
    value.histo = &histogram;
    return write_value(&where->board->train, &value, where->epoch, err);
}

/* ---- the graph ---- */

/* The graph tab's conceptual graph: Keras's config under the plug-in graph_keras_model. */
static int write_graph(struct board *board, const uni_model *model, uni_error *err)
{
    uni_value *config = NULL;
    char *json = NULL;
    size_t size = 0;
    uni_error own = { 0 };
    int status = uni__model_get_config(&config, model, &own);
    /* layers of the user's own have no config: no graph, but everything else */
    if (status == UNI_EUNSUPPORTED)
        return 0;
    if (status < 0)
        return uni_error_set(err, status, "%s", own.message);
    status = uni_json_write(&json, &size, config, 0, err);
    uni_value_free(config);
    UNI_TRY(status);
    Uni__Tb__PluginData plugin = UNI__TB__PLUGIN_DATA__INIT;
    Uni__Tb__Metadata metadata = UNI__TB__METADATA__INIT;
    Uni__Tb__Tensor tensor = UNI__TB__TENSOR__INIT;
    Uni__Tb__Value value = UNI__TB__VALUE__INIT;
    ProtobufCBinaryData text = { size, (uint8_t *)json };
    uint8_t version = '1';
    plugin.plugin_name = "graph_keras_model";
    plugin.content = (ProtobufCBinaryData){ 1, &version };
    metadata.plugin_data = &plugin;
    tensor.dtype = 7;
    tensor.n_string_val = 1;
    tensor.string_val = &text;
    value.tag = "keras";
    value.metadata = &metadata;
    value.value_case = UNI__TB__VALUE__VALUE_TENSOR;
    value.tensor = &tensor;
    status = write_value(&board->train, &value, 0, err);
    free(json);
    return status;
}

/* ---- callback functions ---- */

static void close_files(struct board *board)
{
    if (board->train_open)
        uni__event_file_close(&board->train);
    if (board->validation_open)
        uni__event_file_close(&board->validation);
    board->train_open = board->validation_open = false;
}

static int flush(struct board *board, uni_error *err)
{
    if (board->train_open)
        UNI_TRY(uni__event_file_flush(&board->train, err));
    return board->validation_open ? uni__event_file_flush(&board->validation, err) : 0;
}

static int train_begin(void *self, uni_model *model, const uni_fit_info *info, uni_error *err)
{
    struct board *board = self;
    close_files(board);
    board->in_fit = true;
    board->batches = 0;
    UNI_TRY(open_file(board, "train", &board->train, &board->train_open, err));
    UNI_TRY(write_graph(board, model, err));
    return flush(board, err);
}

static int epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    struct board *board = self;
    for (size_t i = 0; i < logs->count; i++) {
        bool validation = strncmp(logs->names[i], "val_", 4) == 0;
        if (validation)
            UNI_TRY(
                open_file(board, "validation", &board->validation, &board->validation_open, err));
        UNI_TRY(write_scalar(validation ? &board->validation : &board->train, "epoch_",
                             logs->names[i] + (validation ? 4 : 0), "", logs->values[i], epoch,
                             err));
    }
    const uni_optimizer *optimizer = uni_model_optimizer(model);
    if (optimizer != NULL)
        UNI_TRY(write_scalar(&board->train, "epoch_", "learning_rate", "",
                             uni_optimizer_learning_rate(optimizer, err), epoch, err));
    struct histogram_context where = { board, epoch };
    if (board->histogram_freq > 0 && epoch % board->histogram_freq == 0)
        for (size_t i = 0; i < uni_model_num_layers(model); i++)
            UNI_TRY(uni__layer_visit(uni_model_layer(model, i), write_histogram, &where, err));
    return flush(board, err);
}

static int batch_begin(void *self, uni_model *model, int64_t batch, uni_error *err)
{
    ((struct board *)self)->batch_begun = uni__monotonic_ns();
    return 0;
}

static int batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                     uni_error *err)
{
    struct board *board = self;
    double seconds = (double)(uni__monotonic_ns() - board->batch_begun) * 1e-9;
    for (size_t i = 0; i < logs->count; i++)
        UNI_TRY(write_scalar(&board->train, "batch_", logs->names[i], "", logs->values[i],
                             board->batches, err));
    if (seconds > 0)
        UNI_TRY(write_scalar(&board->train, "batch_", "steps_per_second", "", 1 / seconds,
                             board->batches, err));
    board->batches++;
    return 0;
}

static int test_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    struct board *board = self;
    const uni_optimizer *optimizer = uni_model_optimizer(model);
    UNI_TRY(open_file(board, "validation", &board->validation, &board->validation_open, err));
    for (size_t i = 0; i < logs->count; i++)
        UNI_TRY(write_scalar(&board->validation, "evaluation_", logs->names[i], "_vs_iterations",
                             logs->values[i],
                             optimizer != NULL ? uni_optimizer_iterations(optimizer) : 0, err));
    return board->in_fit ? 0 : flush(board, err);
}

static int put_file(uni_value *state, const char *name, bool is_open, const uni__event_file *file)
{
    if (!is_open)
        return 0;
    uni_value *about = uni_value_dict();
    const char *slash = strrchr(file->path, '/');
    int status = uni_dict_take(about, "name", uni_value_string(slash + 1));
    status |= uni_dict_take(about, "size", uni_value_int((int64_t)file->size));
    return uni_dict_take(state, name, about) | status;
}

static int get_state(void *self, uni_value **out, uni_error *err)
{
    struct board *board = self;
    UNI_TRY(flush(board, err));
    *out = uni__callback_numbers(1, (const char *const[]){ "batches" },
                                 (const int64_t[]){ board->batches });
    int status = put_file(*out, "train", board->train_open, &board->train);
    status |= put_file(*out, "validation", board->validation_open, &board->validation);
    return *out != NULL && status == 0
               ? 0
               : uni_error_set(err, UNI_ENOMEM, "no memory for the state of TensorBoard");
}

/* Continues in the file that the state names instead of the one that train_begin created. If it
 * does not exist (another rank's directory, an emptied disk), keeps the new one. */
static void go_on_in_file(struct board *board, const char *name, const uni_value *about,
                          uni__event_file *file, bool *is_open)
{
    uni__event_file old = { .fd = -1 };
    uni_error err = { 0 };
    char *dir = uni__path_join(board->directory, name, NULL);
    if (dir == NULL || about == NULL)
        goto done;
    if (uni__event_file_reopen(&old, dir, uni_dict_get_string(about, "name", ""),
                               (uint64_t)uni_dict_get_int(about, "size", 0), &err) < 0) {
        uni__warn("TensorBoard begins a new file: %s", err.message);
        uni__event_file_close(&old);
        goto done;
    }
    if (*is_open) {
        (void)unlink(file->path);
        uni__event_file_close(file);
    }
    *file = old;
    *is_open = true;
done:
    free(dir);
}

static int set_state(void *self, const uni_value *state, uni_error *err)
{
    struct board *board = self;
    board->batches = uni_dict_get_int(state, "batches", 0);
    go_on_in_file(board, "train", uni_dict_get(state, "train"), &board->train, &board->train_open);
    go_on_in_file(board, "validation", uni_dict_get(state, "validation"), &board->validation,
                  &board->validation_open);
    return 0;
}

static int train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    struct board *board = self;
    int status = flush(board, err);
    board->in_fit = false;
    close_files(board);
    return status;
}

static void free_board(void *self)
{
    struct board *board = self;
    close_files(board);
    free(board->directory);
    free(board);
}

static const uni_callback_class epoch_class = { .name = "TensorBoard",
                                                .train_begin = train_begin,
                                                .train_end = train_end,
                                                .epoch_end = epoch_end,
                                                .test_end = test_end,
                                                .get_state = get_state,
                                                .set_state = set_state,
                                                .free = free_board };
static const uni_callback_class batch_class = { .name = "TensorBoard",
                                                .train_begin = train_begin,
                                                .train_end = train_end,
                                                .epoch_end = epoch_end,
                                                .batch_begin = batch_begin,
                                                .batch_end = batch_end,
                                                .test_end = test_end,
                                                .get_state = get_state,
                                                .set_state = set_state,
                                                .free = free_board };

int uni_callback_tensorboard(uni_callback **out, const char *directory, int histogram_freq,
                             bool every_batch, uni_error *err)
{
    *out = NULL;
    if (directory == NULL || directory[0] == '\0' || histogram_freq < 0)
        return uni_error_set(
            err, UNI_EINVAL,
            "TensorBoard needs a directory, and histogram_freq must not be negative");
    struct board *board =
        uni__callback_make(out, every_batch ? &batch_class : &epoch_class, sizeof *board, err);
    if (board == NULL)
        return UNI_ENOMEM;
    *board = (struct board){ .directory = strdup(directory),
                             .histogram_freq = histogram_freq,
                             .every_batch = every_batch };
    if (board->directory != NULL)
        return 0;
    uni_callback_free(*out);
    *out = NULL;
    return uni_error_set(err, UNI_ENOMEM, "no memory for the path of a TensorBoard callback");
}
