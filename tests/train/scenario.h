/*
 * scenario.h - tests of whole runs: each scenario is a driver function run in a process of its own
 * (meson gives its name on the command line), with workers that are this same program. A failed
 * check prints where and exits with 1.
 */
#ifndef UNISONO_TESTS_SCENARIO_H
#define UNISONO_TESTS_SCENARIO_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unisono/unisono.h>

typedef struct scenario {
    const char *name;
    void (*run)(uni_program *program);
} scenario;

extern const scenario scenarios[]; /* ends with a NULL name */
extern const uni_function functions[]; /* ends with a NULL name */

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            scenario_end(1);                                                                       \
        }                                                                                          \
    } while (0)
#define CHECK_OK(call, err)                                                                        \
    do {                                                                                           \
        int check_status_ = (call);                                                                \
        if (check_status_ < 0) {                                                                   \
            fprintf(stderr, "%s:%d: %s gave %s: %s\n", __FILE__, __LINE__, #call,                  \
                    uni_status_name(check_status_), (err)->message);                               \
            scenario_end(1);                                                                       \
        }                                                                                          \
    } while (0)
#define CHECK_CONTAINS(text, part)                                                                 \
    do {                                                                                           \
        const char *check_text_ = (text);                                                          \
        if (!check_text_ || !strstr(check_text_, part)) {                                          \
            fprintf(stderr, "%s:%d: \"%s\" does not contain \"%s\"\n", __FILE__, __LINE__,         \
                    check_text_ ? check_text_ : "(null)", part);                                   \
            scenario_end(1);                                                                       \
        }                                                                                          \
    } while (0)

void scenario_end(int code) __attribute__((noreturn)); /* removes the storage and exits */
const char *scenario_storage(void); /* a fresh directory of this scenario */
/* Memory that a driver and its workers share through a file; zero at first. NULL: it failed. */
void *scenario_map(const char *path, size_t size);
double scenario_ms(void); /* monotonic milliseconds */
void scenario_sleep_ms(int milliseconds);
uni_trainer *scenario_trainer(uni_program *program,
                              uni_trainer_options options); /* with our storage */
/* {"key": number, ...}: pairs until a NULL key. */
uni_value *scenario_config(const char *key, double number, ...) __attribute__((sentinel));
/* run.json of a run; NULL when it cannot be read. The caller frees it. */
uni_value *scenario_description(const char *run_dir);
/* The cause in run.json. *description owns it (NULL before the first call) and is the caller's to
 * free. */
const uni_value *scenario_cause(uni_value **description, const char *run_dir);
/* Whether a message in the run's journal has these words. */
bool scenario_journal_says(const char *run_dir, const char *words);
/* Times below are those of an idle machine; on a busy one they are longer (patience.h). */
/* Waits until run.json's workers all have a pid, and gives the pid of that rank; 0 after 20 s. */
int scenario_worker_pid(const char *run_dir, int rank);
/* The parent of a process: of a worker the agent, of the agent its keeper; 0 when it is not
 * there. */
int scenario_parent(int pid);
/* Waits until the run has the checkpoint of that number; false after 20 s. */
bool scenario_wait_checkpoint(const char *run_dir, int64_t number);
/* Waits until that many processes have the marker; false after 20 s. */
bool scenario_wait_processes(const char *marker, int count);
/* true when no process has `marker` in its environment or command line within two seconds. */
int scenario_nothing_left(const char *marker);
int scenario_count_processes(const char *marker);
/* Names in a directory, sorted and joined by spaces. */
char *scenario_list(const char *dir, ...) __attribute__((sentinel));

#endif
