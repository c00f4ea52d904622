/*
 * rogue_snapshots.c - a worker that replaces the memory of its checkpoints while the controller
 * reads it: each dictionary is larger than the last one, so that it needs a new buffer, and a
 * thread says all the time that the buffers are free and all checkpoints are done.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unisono/array.h>
#include <unisono/session.h>

#include "group/page.h"

#define STEPS 15
#define STEP_BYTES (1 << 20)

static uni__page *page;

static void *forge(void *unused)
{
    for (;;) {
        atomic_store(&page->slot_free[0], 1);
        atomic_store(&page->slot_free[1], 1);
        atomic_store(&page->checkpoints_done, atomic_load(&page->checkpoints_taken));
        uni__futex_wake(&page->slot_free[0]);
        uni__futex_wake(&page->slot_free[1]);
        uni__futex_wake(&page->checkpoints_done);
        usleep(200);
    }
    return NULL;
}

static int report(uni_session *session, int step, uni_error *err)
{
    uni_value *dict = uni_value_dict(), *metrics = uni_value_dict();
    uni_array *array = NULL;
    int64_t size = (int64_t)(4 + 2 * step) * STEP_BYTES;
    int status = uni_array_new(&array, UNI_U8, 1, &size, err);
    if (status == 0)
        status = uni_dict_take(dict, "weights", uni_value_array(array));
    if (status == 0)
        status = uni_dict_take(metrics, "loss", uni_value_float(1.0));
    if (status == 0)
        status =
            uni_session_report(session, metrics, &(uni_checkpoint_source){ .dict = dict }, err);
    uni_array_unref(array);
    uni_value_free(dict);
    uni_value_free(metrics);
    return status;
}

int main(void)
{
    uni_error err = { 0 };
    uni_session *session = NULL;
    pthread_t thread;
    int fd = -1;
    const char *text = getenv("UNISONO_SESSION");
    if (!text || sscanf(text, "1:p:%*d:%*d:%d:", &fd) != 1)
        return 64;
    page = mmap(NULL, UNI__PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED || uni_session_open(&session, &err) < 0 ||
        pthread_create(&thread, NULL, forge, NULL) != 0)
        return 70;
    int status = 0;
    for (int step = 0; status == 0 && step < STEPS; step++)
        status = report(session, step, &err);
    printf("%s\n", status < 0 ? err.message : "all were reported");
    fflush(stdout);
    _Exit(0);
}
