/*
 * own_loop.c - "my own loop, only report and checkpoint": a program with its own main that knows
 * nothing of trainers.
 *
 *   own_loop [EPOCHS [SECONDS_PER_EPOCH]]                by itself: a world of one that keeps
 *                                                        nothing
 *   unisono run -n 2 -- own_loop 10 0.1                  reports, logs, checkpoints, restarts
 *
 * Three calls make it restartable: load_checkpoint at the start, report with a checkpoint in the
 * loop, should_stop in its condition.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unisono/unisono.h>

/* Newton's method for the square root of 2 stands for the training. */
static double improve(double *estimate)
{
    *estimate = (*estimate + 2 / *estimate) / 2;
    return fabs(*estimate * *estimate - 2);
}

static void rest(double seconds)
{
    struct timespec pause = { .tv_sec = (time_t)seconds,
                              .tv_nsec = (long)(fmod(seconds, 1) * 1e9) };
    nanosleep(&pause, NULL);
}

static int loop(uni_session *session, int epochs, double seconds, uni_error *err)
{
    uni_value *state = NULL;
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    int done = (int)uni_dict_get_int(state, "epoch", 0);
    double estimate = uni_dict_get_float(state, "estimate", 100);
    uni_value_free(state);
    printf("rank %d of %d starts after epoch %d\n", uni_session_info_of(session)->world_rank,
           uni_session_info_of(session)->world_size, done);
    fflush(stdout);

    for (int epoch = done + 1; epoch <= epochs && !uni_session_should_stop(session); epoch++) {
        double loss = improve(&estimate);
        rest(seconds);
        uni_value *metrics = uni_value_dict();
        int status = uni_dict_take(metrics, "epoch", uni_value_int(epoch));
        if (status == 0)
            status = uni_dict_take(metrics, "loss", uni_value_float(loss));
        if (status == 0)
            status = uni_dict_take(metrics, "estimate", uni_value_float(estimate));
        /* The metrics are all there is to know, so they are the checkpoint as well. */
        if (status == 0)
            status = uni_session_report(session, metrics,
                                        &(uni_checkpoint_source){ .dict = metrics }, err);
        uni_value_free(metrics);
        UNI_TRY(status);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int epochs = argc > 1 ? atoi(argv[1]) : 5;
    double seconds = argc > 2 ? atof(argv[2]) : 0;
    uni_error err = { 0 };
    uni_session *session = NULL;
    int status = uni_session_open(&session, &err);
    if (status == 0)
        status = loop(session, epochs, seconds, &err);
    if (status < 0)
        fprintf(stderr, "own_loop: %s\n", err.message);
    uni_session_close(session);
    return status < 0;
}
