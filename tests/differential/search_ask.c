/*
 * search_ask.c - a searcher on a pipe, for search.py: the first line is {"space", "searcher", "seed", "mode"}; then "ask" prints the next trial's config, "tell TRIAL VALUE" gives
 * its result, and "restore TRIAL CONFIG" is what a resumed tuner says of it. One line per answer.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unisono/value.h>

#include "tune/search.h"

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

int main(void)
{
    char *line = NULL;
    size_t room = 0;
    uni_value *about = NULL;
    uni_error err = { 0 };
    uni__searcher searcher = { 0 };
    if (getline(&line, &room, stdin) <= 0 || uni_json_read(&about, line, strlen(line), &err) < 0)
        return complain(&err);
    uni__search_setting setting = {
        .options = uni_dict_get(about, "searcher"),
        .space = uni_dict_get(about, "space"),
        .seed = (uint64_t)uni_dict_get_int(about, "seed", 0),
        .total = -1,
        .sign = strcmp(uni_dict_get_string(about, "mode", "min"), "min") == 0 ? -1 : 1
    };
    int status = uni__searcher_new(&searcher, &setting, &err);
    if (status == 0)
        status = serve(&searcher, &err);
    uni__searcher_clear(&searcher);
    uni_value_free(about);
    free(line);
    return status < 0 ? complain(&err) : 0;
}
