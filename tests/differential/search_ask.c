/*
 * search_ask.c - searchers, schedulers and densities on a pipe, for search.py. The first line is a dictionary that says which:
 *
 *   {"space", "searcher", "seed", "mode"}   "ask" prints the next trial's config, "tell TRIAL VALUE" gives its result, "restore TRIAL CONFIG" is what a resumed tuner says
 *   {"scheduler", "mode"}                   "report TRIAL ITERATION VALUE" prints the verdict: 0 goes on, 1 ends, 2 pauses
 *   {"axes", "rows"}                        a line is a point, a list of numbers in the units of the kernels; the log of its density is printed
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/value.h>

#include "tune/parzen.h"
#include "tune/schedule.h"
#include "tune/search.h"

#define MOST_ROWS 200
#define MOST_AXES 16

static int complain(const uni_error *err)
{
    fprintf(stderr, "search_ask: %s\n", err->message);
    return 1;
}

static int answer(uni__searcher *searcher, int64_t trial, uni_error *err)
{
    uni_value *config = NULL;
    char *text = NULL;
    int status = searcher->methods.ask(searcher->methods.self, trial, &config, err);
    if (status > 0)
        status = uni_json_write(&text, NULL, config, 0, err);
    if (status >= 0)
        puts(text);
    uni_value_free(config);
    free(text);
    return status < 0 ? status : fflush(stdout);
}

static int restore(uni__searcher *searcher, const char *line, uni_error *err)
{
    char *rest;
    int64_t trial = strtoll(line, &rest, 10);
    uni_value *config = NULL;
    UNI_TRY(uni_json_read(&config, rest, strlen(rest), err));
    int status = searcher->methods.restore(searcher->methods.self, trial, config, err);
    uni_value_free(config);
    return status;
}

static int serve(uni__searcher *searcher, uni_error *err)
{
    char *line = NULL, *rest;
    size_t room = 0;
    int64_t next = 0;
    int status = 0;
    while (status >= 0 && getline(&line, &room, stdin) > 0) {
        if (strncmp(line, "ask", 3) == 0) {
            status = answer(searcher, next++, err);
        } else if (strncmp(line, "restore ", 8) == 0) {
            status = restore(searcher, line + 8, err);
            next++;
        } else {
            int64_t trial = strtoll(line + strlen("tell "), &rest, 10);
            status = searcher->methods.tell(searcher->methods.self, trial, NULL, strtod(rest, NULL),
                                            err);
        }
    }
    free(line);
    return status;
}

static int search(const uni_value *about, uni_error *err)
{
    uni__searcher searcher = { 0 };
    uni__search_setting setting = {
        .options = uni_dict_get(about, "searcher"),
        .space = uni_dict_get(about, "space"),
        .seed = (uint64_t)uni_dict_get_int(about, "seed", 0),
        .total = -1,
        .sign = strcmp(uni_dict_get_string(about, "mode", "min"), "min") == 0 ? -1 : 1
    };
    UNI_TRY(uni__searcher_new(&searcher, &setting, err));
    int status = serve(&searcher, err);
    uni__searcher_clear(&searcher);
    return status;
}

static int schedule(const uni_value *about, uni_error *err)
{
    uni__scheduler scheduler = { 0 };
    int sign = strcmp(uni_dict_get_string(about, "mode", "min"), "min") == 0 ? -1 : 1;
    char *line = NULL, *rest;
    size_t room = 0;
    int64_t known = 0;
    int status = uni__scheduler_new(
        &scheduler,
        &(uni__schedule_setting){
            .options = uni_dict_get(about, "scheduler"), .metric = "loss", .sign = sign },
        err);
    while (status == 0 && getline(&line, &room, stdin) > 0) {
        uni__decision decision = { 0 };
        uni__schedule_report report = { .trial = strtoll(line + strlen("report "), &rest, 10) };
        report.iteration = strtoll(rest, &rest, 10);
        report.time = (double)report.iteration;
        report.value = sign * strtod(rest, NULL);
        for (; known <= report.trial && status == 0; known++)
            status = scheduler.methods->added(scheduler.self, known, err);
        if (status == 0)
            status = scheduler.methods->report(scheduler.self, &report, &decision, err);
        printf("%d\n", (int)decision.verdict);
        fflush(stdout);
    }
    free(line);
    uni__scheduler_clear(&scheduler);
    return status;
}

static void read_numbers(const uni_value *list, double *out)
{
    for (size_t i = 0; i < uni_list_size(list) && i < MOST_AXES; i++)
        out[i] = uni_value_as_float(uni_list_get(list, i), NAN);
}

static int measure(const uni_value *about, uni_error *err)
{
    static double cells[MOST_ROWS][MOST_AXES];
    const double *rows[MOST_ROWS];
    uni__domain domains[MOST_AXES];
    uni__axis axes[MOST_AXES];
    const uni_value *given = uni_dict_get(about, "axes"), *all = uni_dict_get(about, "rows");
    int num_axes = (int)uni_list_size(given), status = 0;
    char *line = NULL;
    size_t room = 0;
    for (int i = 0; i < num_axes && status >= 0; i++) {
        status = uni__domain_read(uni_list_get(given, (size_t)i), "", &domains[i], err);
        if (status == 1)
            uni__axis_init(&axes[i], &domains[i]);
    }
    UNI_TRY(status);
    for (size_t i = 0; i < uni_list_size(all); i++) {
        read_numbers(uni_list_get(all, i), cells[i]);
        rows[i] = cells[i];
    }
    uni__parzen *parzen = uni__parzen_new(axes, num_axes, rows, uni_list_size(all));
    while (parzen && getline(&line, &room, stdin) > 0) {
        double point[MOST_AXES];
        uni_value *value = NULL;
        if (uni_json_read(&value, line, strlen(line), err) < 0)
            break;
        read_numbers(value, point);
        printf("%.17g\n", uni__parzen_log(parzen, point));
        fflush(stdout);
        uni_value_free(value);
    }
    free(line);
    uni__parzen_free(parzen);
    return 0;
}

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    uni_value *about = NULL;
    uni_error err = { 0 };
    if (getline(&line, &room, stdin) <= 0 || uni_json_read(&about, line, strlen(line), &err) < 0)
        return complain(&err);
    int status = uni_dict_get(about, "axes")        ? measure(about, &err)
                 : uni_dict_get(about, "scheduler") ? schedule(about, &err)
                                                    : search(about, &err);
    uni_value_free(about);
    free(line);
    return status < 0 ? complain(&err) : 0;
}
