/*
 * fuzz_run.c - any run.json opens or is refused with a sentence; one that opens has a status, an id
 * and a description, and can be read further (its events, its owner). See base/fuzz.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <unisono/log.h>
#include <unisono/run.h>

#include "train/shared.h"
#include "base/file.h"
#include "base/fuzz.h"

static const char *make_directory(void)
{
    static char run[300];
    if (!run[0]) {
        uni_log_level_set(UNI_LOG_OFF);
        snprintf(run, sizeof run, "%s/name/run_001", fuzz_directory());
        FUZZ_PROMISE(uni__make_dirs(run, 0700, NULL) == 0);
    }
    return run;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *run_dir = make_directory();
    char path[400];
    uni_run *run = NULL;
    uni_error err = { 0 };
    snprintf(path, sizeof path, "%s/run.json", run_dir);
    FUZZ_PROMISE(uni__write_file(path, data, size, false, NULL) == 0);
    int status = uni_run_open(&run, run_dir, NULL, &err);
    FUZZ_PROMISE((status == 0) == (run != NULL));
    FUZZ_PROMISE(status == 0 || err.message[0]);
    if (status == 0) {
        const uni_value *events = NULL;
        FUZZ_PROMISE(strcmp(uni_run_info_of(run)->id, "name/run_001") == 0);
        FUZZ_PROMISE(strcmp(uni_run_status_name(uni_run_info_of(run)->status), "?") != 0);
        FUZZ_PROMISE(uni_run_info_of(run)->description != NULL);
        FUZZ_PROMISE(uni_run_events(&events, run, NULL) == 0);
        FUZZ_PROMISE(uni__run_check_owner(run_dir, NULL) == 0);
    }
    uni_run_close(run);
    return 0;
}

FUZZ_SAMPLE_TEXT(
    "{\"format\":\"unisono "
    "run\",\"version\":1,\"id\":\"a/run_001\",\"status\":\"running\",\"created\":1.5,"
    "\"hostname\":\"h\",\"controller\":{\"pid\":1,\"start_ticks\":2},\"num_workers\":2,"
    "\"workers\":[{\"rank\":0,\"pid\":1,\"host\":\"h\"}],\"program\":[\"sh\"],\"config\":{},"
    "\"cause\":{\"kind\":\"exit\",\"rank\":0},\"exit_code\":3}")
