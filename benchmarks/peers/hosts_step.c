/*
 * hosts_step.c - a training step over hosts, for hosts_bench.py: hosts_step STEPS FLOATS. Each step
 * computes (the products of a small network's forward and backward pass, in plain C), adds up a
 * gradient of that many floats over all ranks, and reports. Rank 0 prints "step MICROSECONDS", the
 * median of its steps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <unisono/comm.h>
#include <unisono/session.h>

#define WIDTH 128
#define LAYERS 6 /* three of them, forward and backward */
#define WARM 20

static double now_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec * 1e6 + (double)at.tv_nsec * 1e-3;
}

/* c = a b, all WIDTH x WIDTH */
static void product(float *c, const float *a, const float *b)
{
    for (int i = 0; i < WIDTH; i++)
        for (int j = 0; j < WIDTH; j++)
            c[i * WIDTH + j] = 0;
    for (int i = 0; i < WIDTH; i++)
        for (int k = 0; k < WIDTH; k++)
            for (int j = 0; j < WIDTH; j++)
                c[i * WIDTH + j] += a[i * WIDTH + k] * b[k * WIDTH + j];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int report(uni_session *session, int step, double loss, uni_error *err)
{
    uni_value *metrics = uni_value_dict();
    int status = uni_dict_take(metrics, "step", uni_value_int(step));
    status |= uni_dict_take(metrics, "loss", uni_value_float(loss));
    status |= uni_dict_take(metrics, "accuracy", uni_value_float(1 - loss));
    if (status == 0)
        status = uni_session_report(session, metrics, NULL, err);
    uni_value_free(metrics);
    return status;
}

static int train(uni_session *session, int steps, size_t floats, uni_error *err)
{
    uni_comm *comm = NULL;
    float *a = calloc(WIDTH * WIDTH, sizeof *a), *b = calloc(WIDTH * WIDTH, sizeof *b),
          *c = calloc(WIDTH * WIDTH, sizeof *c), *gradient = calloc(floats, sizeof *gradient);
    double *times = calloc((size_t)steps, sizeof *times);
    int status = a && b && c && gradient && times ? 0 : uni_error_set(err, UNI_ENOMEM, "no memory");
    if (status == 0)
        status = uni_session_comm(&comm, session, NULL, err);
    for (int step = 0; step < steps && status == 0; step++) {
        double begun = now_us();
        for (int layer = 0; layer < LAYERS; layer++)
            product(layer % 2 ? a : c, layer % 2 ? c : a, b);
        status = uni_comm_all_reduce(comm, gradient, gradient, floats, UNI_F32, UNI_COMM_MEAN, err);
        if (status == 0)
            status = report(session, step, c[0], err);
        times[step] = now_us() - begun;
    }
    if (status == 0)
        status = uni_comm_finalize(comm, err);
    if (status == 0) {
        uni_comm_close(comm);
        qsort(times + WARM, (size_t)(steps - WARM), sizeof *times, by_value);
        printf("step %.2f\n", times[WARM + (steps - WARM) / 2]);
        fflush(stdout);
    }
    free(a);
    free(b);
    free(c);
    free(gradient);
    free(times);
    return status;
}

int main(int argc, char **argv)
{
    uni_session *session = NULL;
    uni_error err = { 0 };
    int steps = argc > 1 ? atoi(argv[1]) : 0;
    size_t floats = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    int status = steps > WARM && floats > 0
                     ? uni_session_open(&session, &err)
                     : uni_error_set(&err, UNI_EINVAL, "hosts_step STEPS FLOATS");
    if (status == 0)
        status = train(session, steps, floats, &err);
    if (status < 0) {
        fprintf(stderr, "hosts_step: %s\n", err.message);
        fflush(stderr);
        _Exit(1);
    }
    uni_session_close(session);
    return 0;
}
