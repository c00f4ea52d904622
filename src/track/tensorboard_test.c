/*
 * tensorboard_test.c - what the TensorBoard sink writes, read back record by record: the framing of
 * the event file, scalars, histograms, restarts, and the pages of the hparams plugin.
 */
#include "track/testing.h"

#include <dirent.h>
#include <sys/stat.h>

#include "base/crc32c.h"
#include "track/sink.h"
#include "track/tensorboard_file.h"
#include "track/trials.h"

#define MAX_EVENTS 64

typedef struct events {
    Uni__Tb__Event *list[MAX_EVENTS];
    size_t count;
    char *path;
} events;

static uint64_t little_endian(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* The mask as TensorFlow defines it, written down again here. */
static uint32_t masked(const uint8_t *data, size_t size)
{
    uint32_t crc = uni__crc32c_reference(data, size);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static char *event_path(const char *dir)
{
    char *path = NULL;
    DIR *stream = opendir(dir);
    assert_non_null(stream);
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;)
        if (strncmp(entry->d_name, "events.out.tfevents.", 20) == 0) {
            assert_null(path); /* one file */
            path = uni__path_join(dir, entry->d_name, NULL);
        }
    closedir(stream);
    assert_non_null(path);
    return path;
}

static events read_events(const char *dir)
{
    events all = { .path = event_path(dir) };
    char *bytes = NULL;
    size_t size = 0, at = 0;
    MUST(uni__read_file(&bytes, &size, all.path, 1 << 24, err));
    while (at < size) {
        const uint8_t *record = (const uint8_t *)bytes + at;
        assert_true(size - at >= 16 && all.count < MAX_EVENTS);
        size_t length = (size_t)little_endian(record, 8);
        assert_true(size - at >= 16 + length);
        assert_int_equal(little_endian(record + 8, 4), masked(record, 8));
        assert_int_equal(little_endian(record + 12 + length, 4), masked(record + 12, length));
        all.list[all.count] = uni__tb__event__unpack(NULL, length, record + 12);
        assert_non_null(all.list[all.count++]);
        at += 16 + length;
    }
    free(bytes);
    assert_true(all.count >= 1);
    assert_int_equal(all.list[0]->what_case, UNI__TB__EVENT__WHAT_FILE_VERSION);
    assert_string_equal(all.list[0]->file_version, "brain.Event:2");
    return all;
}

static void events_free(events *all)
{
    for (size_t i = 0; i < all->count; i++)
        uni__tb__event__free_unpacked(all->list[i], NULL);
    free(all->path);
}

static void give(uni_sink *sink, int attempt, int64_t iteration, const char *rank_0,
                 const char *rank_1)
{
    uni_value *values[2] = { rank_0 ? from_json(rank_0) : NULL, rank_1 ? from_json(rank_1) : NULL };
    uni_reports reports = { iteration, attempt, 2, (const uni_value *const *)values };
    MUST(sink->class_->result(sink->self, &reports, err));
    uni_value_free(values[0]);
    uni_value_free(values[1]);
}

static uni_sink *start(void **state, const uni_sink_tensorboard_options *options,
                       const char *config)
{
    uni_sink *sink = NULL;
    uni_value *value = config ? from_json(config) : NULL;
    MUST(uni_sink_tensorboard(&sink, options, err));
    uni_start_info info = { .run_dir = *state,
                            .name = "n",
                            .run_id = "n/run_001",
                            .world_size = 2,
                            .config = value,
                            .started = 1000.5 };
    MUST(sink->class_->start(sink->self, &info, err));
    uni_value_free(value);
    return sink;
}

static void finish(uni_sink *sink, int code)
{
    uni_finish_info info = { .code = code, .message = "", .seconds = 2 };
    MUST(sink->class_->finish(sink->self, &info, err));
    uni_sink_free(sink);
}

static const Uni__Tb__Value *value_at(const Uni__Tb__Event *event, size_t index, const char *tag)
{
    assert_int_equal(event->what_case, UNI__TB__EVENT__WHAT_SUMMARY);
    assert_true(index < event->summary->n_value);
    const Uni__Tb__Value *value = event->summary->value[index];
    assert_string_equal(value->tag, tag);
    return value;
}

static void scalar_is(const Uni__Tb__Event *event, size_t index, const char *tag, double number)
{
    const Uni__Tb__Value *value = value_at(event, index, tag);
    assert_int_equal(value->value_case, UNI__TB__VALUE__VALUE_SIMPLE_VALUE);
    assert_float_equal(value->simple_value, number, 1e-6);
}

static void scalars(void **state)
{
    uni_sink *sink = start(state, NULL, NULL);
    give(sink, 1, 1,
         "{\"loss\":0.5,\"a\":{\"b\":true,\"c\":{\"d\":-2}},\"text\":\"x\",\"none\":null,"
         "\"empty\":[],\"_timestamp\":77.25,\"_pid\":3,\"_time_total_s\":4,"
         "\"_training_iteration\":1}",
         "{\"loss\":9}");
    give(sink, 1, 2, NULL, "{\"loss\":9}"); /* rank 0 did not report: no event */
    give(sink, 1, 3, "{\"a\":{\"c\":{\"d\":-3}},\"new\":4,\"loss\":0.25,\"_timestamp\":78}", NULL);
    give(sink, 1, 4, "{\"text\":\"nothing to draw\"}", NULL);
    finish(sink, 0);
    events all = read_events(*state);
    assert_int_equal(all.count, 4); /* version, two reports, the session's end */
    assert_int_equal(all.list[1]->step, 1);
    assert_true(all.list[1]->wall_time == 77.25);
    assert_int_equal(all.list[1]->summary->n_value, 3);
    scalar_is(all.list[1], 0, "loss", 0.5);
    scalar_is(all.list[1], 1, "a/b", 1);
    scalar_is(all.list[1], 2, "a/c/d", -2);
    assert_int_equal(all.list[2]->step, 3);
    assert_true(all.list[2]->wall_time == 78);
    assert_int_equal(all.list[2]->summary->n_value, 3);
    scalar_is(all.list[2], 0, "a/c/d", -3);
    scalar_is(all.list[2], 1, "new", 4);
    scalar_is(all.list[2], 2, "loss", 0.25);
    struct stat info;
    assert_int_equal(stat(all.path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    events_free(&all);
}

static void prefix_rank_and_folder(void **state)
{
    char dir[300];
    snprintf(dir, sizeof dir, "%s/board", (char *)*state);
    uni_sink *sink =
        start(state, &(uni_sink_tensorboard_options){ .dir = dir, .prefix = "unisono/", .rank = 1 },
              NULL);
    give(sink, 1, 1, "{\"loss\":1}", "{\"loss\":9}");
    sink->class_->tick(sink->self); /* what was reported is readable before the end */
    events all = read_events(dir);
    assert_int_equal(all.count, 2);
    scalar_is(all.list[1], 0, "unisono/loss", 9);
    events_free(&all);
    finish(sink, 0);
    all = read_events(dir);
    assert_int_equal(all.count, 3); /* nothing twice */
    events_free(&all);
}

/* Bucket i counts the numbers above limit i - 1 and not above limit i. */
static void histogram_is(const Uni__Tb__Histogram *h, const double *numbers, size_t count)
{
    double num = 0;
    for (size_t i = 0; i < h->n_bucket; i++) {
        double below = i > 0 ? h->bucket_limit[i - 1] : -INFINITY, expected = 0;
        for (size_t n = 0; n < count; n++)
            expected +=
                isfinite(numbers[n]) && numbers[n] > below && numbers[n] <= h->bucket_limit[i];
        assert_true(h->bucket[i] == expected);
        num += expected;
    }
    assert_true(h->num == num);
}

static void histograms(void **state)
{
    static const double spread[] = { 0, 1, 1, 15.5, 30 }, same[] = { 7, 7, 7 };
    uni_sink *sink = start(state, NULL, NULL);
    give(sink, 1, 1, "{\"h\":[0,1,1,15.5,30],\"s\":[7,7,7],\"mixed\":[1,\"x\"],\"loss\":2}", NULL);
    /* NaN and infinities are not JSON. */
    uni_value *list = uni_value_list(), *report = uni_value_dict();
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            uni_list_take(list, uni_value_float((const double[]){ NAN, 3, INFINITY, 5 }[i])), 0);
    assert_int_equal(uni_dict_take(report, "h", list), 0);
    uni_reports reports = { 2, 1, 1, (const uni_value *const *)&report };
    MUST(sink->class_->result(sink->self, &reports, err));
    uni_value_free(report);
    finish(sink, 0);
    events all = read_events(*state);
    const Uni__Tb__Event *event = all.list[1];
    assert_int_equal(event->summary->n_value, 3); /* a list with text is not drawn */
    const Uni__Tb__Histogram *h = value_at(event, 0, "h")->histo;
    assert_true(h->min == 0 && h->max == 30 && h->sum == 47.5 && h->num == 5);
    assert_true(h->sum_squares == 1 + 1 + 15.5 * 15.5 + 900);
    assert_int_equal(h->n_bucket, 30);
    assert_int_equal(h->n_bucket_limit, 30);
    assert_true(h->bucket_limit[0] == 1 && h->bucket_limit[29] == 30);
    histogram_is(h, spread, 5);
    h = value_at(event, 1, "s")->histo;
    assert_int_equal(h->n_bucket, 1);
    assert_true(h->min == 7 && h->max == 7 && h->bucket_limit[0] == 7 && h->bucket[0] == 3);
    histogram_is(h, same, 3);
    scalar_is(event, 2, "loss", 2);
    event = all.list[2];
    h = value_at(event, 0, "h")->histo;
    assert_true(h->num == 2 && h->min == 3 && h->max == 5 && h->sum == 8);
    scalar_is(event, 1, "h/nonfinite", 2);
    assert_int_equal(event->summary->n_value, 2);
    events_free(&all);
}

/* A new attempt that begins before the last step tells readers to drop what they have. */
static void restarts(void **state)
{
    uni_sink *sink = start(state, NULL, NULL);
    give(sink, 1, 1, "{\"loss\":1}", NULL);
    give(sink, 1, 2, "{\"loss\":2}", NULL);
    give(sink, 2, 2, "{\"loss\":3,\"_timestamp\":5}", NULL); /* from the checkpoint of step 1 */
    give(sink, 3, 3, "{\"loss\":4}", NULL); /* goes on where the second ended */
    finish(sink, 1);
    events all = read_events(*state);
    assert_int_equal(all.count, 7);
    for (size_t i = 1; i < 6; i++)
        assert_int_equal(all.list[i]->what_case,
                         i == 3 ? UNI__TB__EVENT__WHAT_SESSION_LOG : UNI__TB__EVENT__WHAT_SUMMARY);
    assert_int_equal(all.list[3]->session_log->status, UNI__TB__SESSION_LOG__STATUS__START);
    assert_int_equal(all.list[3]->step, 2);
    assert_true(all.list[3]->wall_time == 5);
    scalar_is(all.list[4], 0, "loss", 3);
    events_free(&all);
}

static Uni__Tb__HParams *page_of(const Uni__Tb__Event *event, const char *tag)
{
    const Uni__Tb__Value *value = value_at(event, 0, tag);
    assert_non_null(value->metadata);
    assert_string_equal(value->metadata->plugin_data->plugin_name, "hparams");
    Uni__Tb__HParams *page =
        uni__tb__hparams__unpack(NULL, value->metadata->plugin_data->content.len,
                                 value->metadata->plugin_data->content.data);
    assert_non_null(page);
    return page;
}

static const Uni__Tb__Any *param(const Uni__Tb__SessionStart *session, size_t index,
                                 const char *key)
{
    assert_true(index < session->n_hparams);
    assert_string_equal(session->hparams[index]->key, key);
    return session->hparams[index]->value;
}

static void sessions(void **state)
{
    uni_sink *sink = start(state, NULL,
                           "{\"lr\":0.125,\"model\":{\"layers\":3,\"bias\":false},\"name\":\"x\","
                           "\"sizes\":[1,2],\"none\":null}");
    finish(sink, UNI_EPEER);
    events all = read_events(*state);
    assert_int_equal(all.count, 3);
    Uni__Tb__HParams *page = page_of(all.list[1], "_hparams_/session_start_info");
    const Uni__Tb__SessionStart *session = page->session_start_info;
    assert_string_equal(session->group_name, "n/run_001");
    assert_true(session->start_time_secs == 1000.5);
    assert_int_equal(session->n_hparams, 5);
    assert_true(param(session, 0, "lr")->number_value == 0.125);
    assert_true(param(session, 1, "model/layers")->number_value == 3);
    assert_int_equal(param(session, 2, "model/bias")->kind_case, UNI__TB__ANY__KIND_BOOL_VALUE);
    assert_false(param(session, 2, "model/bias")->bool_value);
    assert_string_equal(param(session, 3, "name")->string_value, "x");
    assert_string_equal(param(session, 4, "sizes")->string_value, "[1, 2]");
    uni__tb__hparams__free_unpacked(page, NULL);
    page = page_of(all.list[2], "_hparams_/session_end_info");
    assert_int_equal(page->session_end_info->status, UNI__TB__SESSION_END__STATUS__FAILURE);
    assert_true(page->session_end_info->end_time_secs == 1002.5);
    uni__tb__hparams__free_unpacked(page, NULL);
    events_free(&all);
}

static void experiments(void **state)
{
    uni_value *configs[] = { from_json("{\"lr\":1,\"act\":\"relu\",\"x\":true,\"o\":{\"m\":0.9}}"),
                             from_json("{\"lr\":0.5,\"act\":\"tanh\",\"x\":3,\"late\":null}") };
    uni_value *metrics = from_json("[\"loss\",\"acc\"]");
    MUST(uni__tensorboard_experiment(*state, "search", 12.5, (const uni_value *const *)configs, 2,
                                     metrics, err));
    events all = read_events(*state);
    assert_int_equal(all.count, 2);
    Uni__Tb__HParams *page = page_of(all.list[1], "_hparams_/experiment");
    const Uni__Tb__Experiment *experiment = page->experiment;
    static const struct {
        const char *name;
        int type;
    } expected[] = { { "lr", UNI__TB__HPARAM_INFO__TYPE__FLOAT64 },
                     { "act", UNI__TB__HPARAM_INFO__TYPE__STRING },
                     /* trials differ in its type */
                     { "x", UNI__TB__HPARAM_INFO__TYPE__STRING },
                     { "o/m", UNI__TB__HPARAM_INFO__TYPE__FLOAT64 } };
    assert_string_equal(experiment->name, "search");
    assert_true(experiment->time_created_secs == 12.5);
    assert_int_equal(experiment->n_hparam_infos, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(experiment->hparam_infos[i]->name, expected[i].name);
        assert_int_equal(experiment->hparam_infos[i]->type, expected[i].type);
    }
    assert_int_equal(experiment->n_metric_infos, 2);
    assert_string_equal(experiment->metric_infos[0]->name->tag, "loss");
    assert_string_equal(experiment->metric_infos[1]->name->tag, "acc");
    uni__tb__hparams__free_unpacked(page, NULL);
    events_free(&all);
    uni_value_free(configs[0]);
    uni_value_free(configs[1]);
    uni_value_free(metrics);
}

static void scalar_event(uni__event_file *file, int64_t step)
{
    Uni__Tb__Event event = UNI__TB__EVENT__INIT;
    event.step = step;
    MUST(uni__event_file_add(file, &event, err));
}

/* A file that a checkpoint remembers goes on at the checkpoint's end. */
static void reopened(void **state)
{
    uni__event_file file = { .fd = -1 }, again = { .fd = -1 };
    uni_error failure = { 0 };
    MUST(uni__event_file_open(&file, *state, err));
    scalar_event(&file, 1);
    MUST(uni__event_file_flush(&file, err));
    uint64_t size = file.size;
    scalar_event(&file, 2);
    MUST(uni__event_file_flush(&file, err));
    assert_true(file.size > size);
    char *name = strdup(strrchr(file.path, '/') + 1);
    uint64_t whole = file.size;
    uni__event_file_close(&file);
    MUST(uni__event_file_reopen(&again, *state, name, size, err));
    scalar_event(&again, 7);
    MUST(uni__event_file_flush(&again, err));
    uni__event_file_close(&again);
    events all = read_events(*state);
    assert_int_equal(all.count, 3);
    assert_int_equal(all.list[1]->step, 1);
    assert_int_equal(all.list[2]->step, 7);
    events_free(&all);
    assert_int_equal(uni__event_file_reopen(&again, *state, name, whole + 1, &failure),
                     UNI_ECORRUPT);
    assert_non_null(strstr(failure.message, "shorter than when the checkpoint was taken"));
    uni__event_file_close(&again);
    assert_int_equal(uni__event_file_reopen(&again, *state, "../results.jsonl", 0, &failure),
                     UNI_EFORMAT);
    uni__event_file_close(&again);
    free(name);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, drop_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(scalars),    TEST(prefix_rank_and_folder),
        TEST(histograms), TEST(restarts),
        TEST(sessions),   TEST(experiments),
        TEST(reopened),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
