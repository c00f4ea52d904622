/*
 * restarts_compare.c - what a run leaves behind, as one value, and the first difference of two of them. Times, process numbers and attempts are left out; event files
 * of TensorBoard become the set of their events without their times.
 */
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#include "restarts.h"

/* ---- values ---- */

static bool same_array(const uni_array *a, const uni_array *b)
{
    if (uni_array_dtype(a) != uni_array_dtype(b))
        return false;
    size_t bytes = uni_array_bytes(a);
    return bytes == uni_array_bytes(b) &&
           (bytes == 0 || memcmp(uni_array_data(a), uni_array_data(b), bytes) == 0);
}

/* path: where in the value; grows and shrinks. */
static bool differ(const uni_value *a, const uni_value *b, char *path, size_t size);

static bool differ_inside(const char *name, const uni_value *a, const uni_value *b, char *path,
                          size_t size)
{
    size_t used = strlen(path);
    snprintf(path + used, size - used, "/%s", name);
    if (!a != !b) {
        used = strlen(path);
        snprintf(path + used, size - used, " is only in the %s run", a ? "undisturbed" : "killed");
        return true;
    }
    if (differ(a, b, path, size))
        return true;
    path[used] = '\0';
    return false;
}

static bool differ_dicts(const uni_value *a, const uni_value *b, char *path, size_t size)
{
    for (size_t i = 0; i < uni_dict_size(a); i++) {
        const char *key = uni_dict_key_at(a, i);
        if (differ_inside(key, uni_dict_value_at(a, i), uni_dict_get(b, key), path, size))
            return true;
    }
    for (size_t i = 0; i < uni_dict_size(b); i++)
        if (!uni_dict_get(a, uni_dict_key_at(b, i)) &&
            differ_inside(uni_dict_key_at(b, i), NULL, uni_dict_value_at(b, i), path, size))
            return true;
    return false;
}

static bool differ_lists(const uni_value *a, const uni_value *b, char *path, size_t size)
{
    char number[32];
    size_t count = uni_list_size(a) > uni_list_size(b) ? uni_list_size(a) : uni_list_size(b);
    for (size_t i = 0; i < count; i++) {
        snprintf(number, sizeof number, "%zu", i);
        if (differ_inside(number, uni_list_get(a, i), uni_list_get(b, i), path, size))
            return true;
    }
    return false;
}

static bool same_number(const uni_value *a, const uni_value *b)
{
    double x = uni_value_as_float(a, 0), y = uni_value_as_float(b, 0);
    return memcmp(&x, &y, sizeof x) == 0;
}

static bool differ(const uni_value *a, const uni_value *b, char *path, size_t size)
{
    char *texts[2] = { NULL, NULL };
    size_t sizes[2], used = strlen(path);
    if (uni_value_type_of(a) == UNI_TYPE_DICT && uni_value_type_of(b) == UNI_TYPE_DICT)
        return differ_dicts(a, b, path, size);
    if (uni_value_type_of(a) == UNI_TYPE_LIST && uni_value_type_of(b) == UNI_TYPE_LIST)
        return differ_lists(a, b, path, size);
    if (uni_value_as_array(a) && uni_value_as_array(b)) {
        if (same_array(uni_value_as_array(a), uni_value_as_array(b)))
            return false;
        snprintf(path + used, size - used, ": the arrays differ");
        return true;
    }
    if (uni_value_is_number(a) && uni_value_is_number(b) && same_number(a, b))
        return false;
    CHECK(uni_json_write(&texts[0], &sizes[0], a, 0, NULL) == 0);
    CHECK(uni_json_write(&texts[1], &sizes[1], b, 0, NULL) == 0);
    bool other = strcmp(texts[0], texts[1]) != 0;
    if (other)
        snprintf(path + used, size - used, ": %.150s, but %.150s", texts[0], texts[1]);
    free(texts[0]);
    free(texts[1]);
    return other;
}

bool restarts_differ(const uni_value *a, const uni_value *b, char *where, size_t size)
{
    where[0] = '\0';
    return differ(a, b, where, size);
}

/* ---- files ---- */

static char *read_all(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    CHECK(file && fseek(file, 0, SEEK_END) == 0);
    *size = (size_t)ftell(file);
    rewind(file);
    char *bytes = calloc(1, *size + 1);
    CHECK(bytes && fread(bytes, 1, *size, file) == *size);
    fclose(file);
    return bytes;
}

/* The events of a file, without their times, as keys of a dictionary: a set. Length and checks are 12 bytes before and 4 behind each; field 1 of an event is its
 * time, 9 bytes at its beginning. */
static void add_events(uni_value *set, const char *path)
{
    size_t size, at = 0;
    uint8_t *bytes = (uint8_t *)read_all(path, &size);
    while (at + 12 <= size) {
        uint64_t length;
        memcpy(&length, bytes + at, sizeof length);
        CHECK(at + 12 + length + 4 <= size && length > 9 && bytes[at + 12] == 0x09);
        char *key = calloc(1, 2 * length + 1);
        for (size_t i = 9; i < length; i++)
            sprintf(key + 2 * (i - 9), "%02x", bytes[at + 12 + i]);
        CHECK(uni_dict_take(set, key, uni_value_int(1)) == 0);
        free(key);
        at += 12 + length + 4;
    }
    CHECK(at == size);
    free(bytes);
}

static void add_file(uni_value *out, const char *name, const char *path)
{
    size_t size;
    if (strstr(name, "events.out.tfevents")) {
        uni_value *set = (uni_value *)(uintptr_t)uni_dict_get(out, "events");
        if (!set) {
            CHECK(uni_dict_take(out, "events", uni_value_dict()) == 0);
            set = (uni_value *)(uintptr_t)uni_dict_get(out, "events");
        }
        add_events(set, path);
        return;
    }
    char *bytes = read_all(path, &size);
    char *hex = calloc(1, 2 * size + 1);
    if (strstr(name, ".csv")) {
        CHECK(uni_dict_take(out, name, uni_value_string(bytes)) == 0);
    } else {
        for (size_t i = 0; i < size; i++)
            sprintf(hex + 2 * i, "%02x", (unsigned char)bytes[i]);
        CHECK(uni_dict_take(out, name, uni_value_string(hex)) == 0);
    }
    free(hex);
    free(bytes);
}

static uni_value *files_below(const char *dir)
{
    uni_value *out = uni_value_dict();
    DIR *entries = opendir(dir);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        char path[4600];
        struct stat info;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        CHECK(lstat(path, &info) == 0);
        if (S_ISDIR(info.st_mode))
            CHECK(uni_dict_take(out, entry->d_name, files_below(path)) == 0);
        else
            add_file(out, entry->d_name, path);
    }
    if (entries)
        closedir(entries);
    return out;
}

/* ---- the run ---- */

static bool is_of_the_moment(const char *name)
{
    return strcmp(name, "_timestamp") == 0 || strcmp(name, "_time_this_iter_s") == 0 ||
           strcmp(name, "_attempt") == 0 || strcmp(name, "time_total_s") == 0;
}

uni_value *restarts_without_times(const uni_value *metrics)
{
    uni_value *out = uni_value_dict();
    for (size_t i = 0; i < uni_dict_size(metrics); i++)
        if (!is_of_the_moment(uni_dict_key_at(metrics, i)))
            CHECK(uni_dict_take(out, uni_dict_key_at(metrics, i),
                                uni_value_copy(uni_dict_value_at(metrics, i))) == 0);
    return out;
}

/* The names of event files are of their time. */
static void drop_event_files(uni_value *dict)
{
    uni_value *callbacks = (uni_value *)(uintptr_t)uni_value_path(dict, "fit.callbacks");
    if (callbacks)
        uni_dict_remove(callbacks, "TensorBoard 0");
}

static const char *base_of(const char *path)
{
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path ? path : "none";
}

uni_value *restarts_checkpoint(const char *path)
{
    uni_error err = { 0 };
    uni_checkpoint *checkpoint = NULL;
    uni_value *out = uni_value_dict(), *dict = NULL;
    CHECK_OK(uni_checkpoint_open(&checkpoint, path, &err), &err);
    CHECK_OK(uni_checkpoint_verify(checkpoint, &err), &err);
    CHECK(uni_dict_take(out, "iteration",
                        uni_value_int(uni_checkpoint_info_of(checkpoint)->iteration)) == 0);
    CHECK(uni_dict_take(out, "metrics",
                        restarts_without_times(uni_checkpoint_info_of(checkpoint)->metrics)) == 0);
    if (uni_checkpoint_info_of(checkpoint)->is_dict) {
        CHECK_OK(uni_checkpoint_read_dict(&dict, checkpoint, &err), &err);
        drop_event_files(dict);
        CHECK(uni_dict_take(out, "dict", dict) == 0);
    } else {
        uni_value *files = files_below(path);
        uni_dict_remove(files, ".unisono-manifest.json");
        CHECK(uni_dict_take(out, "files", files) == 0);
    }
    uni_checkpoint_close(checkpoint);
    return out;
}

static uni_value *checkpoints_of(const char *run_dir)
{
    uni_value *out = uni_value_dict();
    char path[4400];
    char *names = scenario_list(run_dir, "checkpoints", NULL), *rest = NULL;
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        snprintf(path, sizeof path, "%s/checkpoints/%s", run_dir, name);
        CHECK(uni_dict_take(out, name, restarts_checkpoint(path)) == 0);
    }
    free(names);
    return out;
}

/* The reports that count: of every rank and iteration the last one. */
static uni_value *reports_of(const char *run_dir)
{
    uni_value *out = uni_value_dict();
    char path[4400], key[64], *line = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/results.jsonl", run_dir);
    FILE *file = fopen(path, "r");
    for (ssize_t size; file && (size = getline(&line, &room, file)) > 0;) {
        uni_value *record = NULL;
        CHECK(uni_json_read(&record, line, (size_t)size, NULL) == 0);
        const uni_value *metrics = uni_dict_get(record, "metrics");
        snprintf(key, sizeof key, "rank %d, iteration %d",
                 (int)uni_dict_get_int(record, "rank", -1),
                 (int)uni_dict_get_int(record, "iteration", -1));
        if (metrics)
            CHECK(uni_dict_take(out, key, restarts_without_times(metrics)) == 0);
        uni_value_free(record);
    }
    free(line);
    if (file)
        fclose(file);
    return out;
}

uni_value *restarts_left_in(const char *run_dir)
{
    uni_value *out = uni_value_dict();
    CHECK(uni_dict_take(out, "checkpoints", checkpoints_of(run_dir)) == 0);
    CHECK(uni_dict_take(out, "reports", reports_of(run_dir)) == 0);
    return out;
}

uni_value *restarts_outcome(const uni_result *result, const char *files)
{
    uni_value *out = uni_value_dict(), *ranks = uni_value_list();
    const char *run_dir = uni_result_info_of(result)->run_dir;
    for (int i = 0; i < uni_result_info_of(result)->world_size; i++) {
        uni_value *rank = uni_value_dict();
        const uni_value *returned = uni_result_info_of(result)->returned[i];
        if (returned)
            CHECK(uni_dict_take(rank, "returned", uni_value_copy(returned)) == 0);
        CHECK(uni_dict_take(rank, "metrics",
                            restarts_without_times(uni_result_info_of(result)->metrics[i])) == 0);
        CHECK(uni_dict_take(rank, "iterations",
                            uni_value_int(uni_result_info_of(result)->iterations[i])) == 0);
        CHECK(uni_list_take(ranks, rank) == 0);
    }
    CHECK(uni_dict_take(out, "ranks", ranks) == 0);
    CHECK(uni_dict_take(out, "latest",
                        uni_value_string(base_of(uni_result_info_of(result)->latest_checkpoint))) ==
          0);
    CHECK(uni_dict_take(out, "best",
                        uni_value_string(base_of(uni_result_info_of(result)->best_checkpoint))) ==
          0);
    CHECK(uni_dict_take(out, "checkpoints", checkpoints_of(run_dir)) == 0);
    CHECK(uni_dict_take(out, "reports", reports_of(run_dir)) == 0);
    CHECK(uni_dict_take(out, "files", files_below(files)) == 0);
    return out;
}
