/*
 * engine_models.h - the models of ./bench engine and their data; peers/engine_common.py
 * describes them for every peer.
 */
#ifndef UNISONO_BENCH_ENGINE_MODELS_H
#define UNISONO_BENCH_ENGINE_MODELS_H

#include <unisono/nn.h>

#define BATCHES 32 /* batches of random data that are used in turn */

typedef struct bench_row {
    const char *name;
    const char *optimizer, *loss;
    double learning_rate;
    int64_t x[3]; /* shape of a sample, zeros at the end */
    int64_t classes; /* 1: 0 or 1 as a float; more: class numbers */
    int64_t positions; /* class numbers a sample; 0: one without an axis */
    int parameters; /* as the peers count them */
} bench_row;

extern const bench_row rows[];
extern const int num_rows;

/* Built, seeded and compiled. */
int make_model(uni_model **out, const bench_row *row, uni_error *err);
/* 784-width-width-10. */
int make_mlp(uni_model **out, int64_t width, const bench_row *row, uni_error *err);

/* Batches in memory that are handed out in turn, without a copy and without an end. */
typedef struct bench_feed {
    int count; /* of batches */
    int next;
    uni_batch batches[BATCHES];
    void *memory[2 * BATCHES];
} bench_feed;
int feed_fill(bench_feed *feed, const bench_row *row, int64_t batch, int count, uni_error *err);
void feed_free(bench_feed *feed);
int feed_open(uni_batches **out, bench_feed *feed, uni_error *err);

#endif
