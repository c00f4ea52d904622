/* scenario.c - the main of the scenario programs and their helpers; see scenario.h. */
#include "scenario.h"

#include "../patience.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <time.h>

static char storage[256];

const char *scenario_storage(void)
{
    if (!storage[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(storage, sizeof storage, "%s/unisono-test-XXXXXX",
                 base && base[0] ? base : "/tmp");
        if (!mkdtemp(storage)) {
            perror(storage);
            exit(1);
        }
    }
    return storage;
}

void scenario_end(int code)
{
    if (storage[0] && !getenv("UNISONO_TEST_KEEP")) {
        char command[400];
        snprintf(command, sizeof command, "rm -rf '%s'", storage);
        if (system(command) != 0)
            fprintf(stderr, "%s is left\n", storage);
    }
    exit(code);
}

void *scenario_map(const char *path, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
        memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

double scenario_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

void scenario_sleep_ms(int milliseconds)
{
    struct timespec pause = { .tv_sec = milliseconds / 1000,
                              .tv_nsec = (milliseconds % 1000) * 1000000L };
    while (nanosleep(&pause, &pause) < 0)
        ;
}

uni_trainer *scenario_trainer(uni_program *program, uni_trainer_options options)
{
    uni_error err = { 0 };
    uni_trainer *trainer = NULL;
    options.main = program;
    options.storage_path = options.storage_path ? options.storage_path : scenario_storage();
    CHECK_OK(uni_trainer_new(&trainer, &options, &err), &err);
    return trainer;
}

uni_value *scenario_config(const char *key, double number, ...)
{
    va_list more;
    uni_value *config = uni_value_dict();
    va_start(more, number);
    while (key) {
        CHECK(uni_dict_take(config, key,
                            number == (int64_t)number ? uni_value_int((int64_t)number)
                                                      : uni_value_float(number)) == 0);
        key = va_arg(more, const char *);
        if (key)
            number = va_arg(more, double);
    }
    va_end(more);
    return config;
}

uni_value *scenario_description(const char *run_dir)
{
    char path[4096];
    uni_value *description = NULL;
    snprintf(path, sizeof path, "%s/run.json", run_dir);
    return uni_json_read_file(&description, path, NULL) == 0 ? description : NULL;
}

const uni_value *scenario_cause(uni_value **description, const char *run_dir)
{
    uni_value_free(*description);
    *description = scenario_description(run_dir);
    return uni_dict_get(*description, "cause");
}

bool scenario_journal_says(const char *run_dir, const char *words)
{
    uni_run *run = NULL;
    uni_error err = { 0 };
    const uni_value *events;
    bool found = false;
    CHECK_OK(uni_run_open(&run, run_dir, NULL, &err), &err);
    CHECK_OK(uni_run_events(&events, run, &err), &err);
    for (size_t i = 0; i < uni_list_size(events); i++)
        found |= strstr(uni_dict_get_string(uni_list_get(events, i), "message", ""), words) != NULL;
    uni_run_close(run);
    return found;
}

/* Sleeps a little; false when `seconds`, and more on a busy machine, have gone by since `begun`
 * (scenario_ms). */
static bool wait_more(double begun, double seconds)
{
    scenario_sleep_ms(10);
    return scenario_ms() - begun < seconds * 1e3 * test_patience();
}

int scenario_worker_pid(const char *run_dir, int rank)
{
    double begun = scenario_ms();
    do {
        uni_value *description = scenario_description(run_dir);
        const uni_value *workers = uni_dict_get(description, "workers");
        int pid = (int)uni_dict_get_int(uni_list_get(workers, (size_t)rank), "pid", 0);
        uni_value_free(description);
        if (pid > 0)
            return pid;
    } while (wait_more(begun, 20));
    return 0;
}

bool scenario_wait_checkpoint(const char *run_dir, int64_t number)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/checkpoints/checkpoint_%06d", run_dir, (int)number);
    double begun = scenario_ms();
    do {
        if (access(path, F_OK) == 0) {
            scenario_sleep_ms(50); /* it is in its place; the controller hears of it next */
            return true;
        }
    } while (wait_more(begun, 20));
    return false;
}

bool scenario_wait_processes(const char *marker, int count)
{
    double begun = scenario_ms();
    do {
        if (scenario_count_processes(marker) >= count)
            return true;
        scenario_sleep_ms(90); /* looking at every process is work too */
    } while (wait_more(begun, 20));
    return false;
}

int scenario_parent(int pid)
{
    char path[64], line[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    FILE *file = fopen(path, "r");
    if (file && fgets(line, sizeof line, file))
        sscanf(strrchr(line, ')') + 1, " %*c %d", &parent);
    if (file)
        fclose(file);
    return parent;
}

static int file_has(const char *pid, const char *file, const char *marker)
{
    char path[300], *text = malloc(1 << 20);
    snprintf(path, sizeof path, "/proc/%s/%s", pid, file);
    FILE *in = fopen(path, "r");
    size_t size = in ? fread(text, 1, 1 << 20, in) : 0;
    int found = size > 0 && memmem(text, size, marker, strlen(marker)) != NULL;
    if (in)
        fclose(in);
    free(text);
    return found;
}

int scenario_count_processes(const char *marker)
{
    DIR *proc = opendir("/proc");
    int count = 0;
    for (struct dirent *entry; proc && (entry = readdir(proc));)
        if (isdigit((unsigned char)entry->d_name[0]) && atoi(entry->d_name) != getpid() &&
            file_has(entry->d_name, "environ", marker))
            count++;
    closedir(proc);
    return count;
}

int scenario_nothing_left(const char *marker)
{
    double begun = scenario_ms();
    do {
        if (scenario_count_processes(marker) == 0)
            return 1;
    } while (wait_more(begun, 2));
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char *scenario_list(const char *dir, ...)
{
    char path[4096], *names[1000], *out = calloc(1, 100000);
    int count = 0;
    va_list parts;
    snprintf(path, sizeof path, "%s", dir);
    va_start(parts, dir);
    for (const char *part; (part = va_arg(parts, const char *));)
        snprintf(path + strlen(path), sizeof path - strlen(path), "/%s", part);
    va_end(parts);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && count < 1000 && (entry = readdir(folder));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            names[count++] = strdup(entry->d_name);
    if (folder)
        closedir(folder);
    qsort(names, (size_t)count, sizeof names[0], by_name);
    for (int i = 0; i < count; i++) {
        sprintf(out + strlen(out), "%s%s", i ? " " : "", names[i]);
        free(names[i]);
    }
    return out;
}

static int driver(uni_program *program, int argc, char **argv)
{
    for (const scenario *at = scenarios; argc == 2 && at->name; at++)
        if (strcmp(at->name, argv[1]) == 0) {
            at->run(program);
            scenario_end(0);
        }
    fprintf(stderr, "usage: %s SCENARIO; there are:\n", argv[0]);
    for (const scenario *at = scenarios; at->name; at++)
        fprintf(stderr, "  %s\n", at->name);
    return 64;
}

int main(int argc, char **argv)
{
    return uni_main(argc, argv, functions, driver);
}
