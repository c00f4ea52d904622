/*
 * runner.h - what runs a batch through a model: replica threads, each with its tape and gradients,
 * and the update.
 *
 * fit, evaluate, predict and train_on_batch all go through here. A batch is cut into one part a
 * replica; each runs forward (and backward) on its own tape; losses and metrics are sums, gradients
 * are sums over samples, and the optimizer gets 1 / samples. With one replica it is the plain loop
 * of docs/engine.md. Nothing is allocated after the first steps. The model's thread calls; replica
 * threads are the runner's own.
 */
#ifndef UNISONO_NN_RUNNER_H
#define UNISONO_NN_RUNNER_H

#include "nn/model/compile.h"
#include "nn/model/team.h"

enum { UNI__PHASE_INPUT, UNI__PHASE_FORWARD, UNI__PHASE_BACKWARD, UNI__PHASE_UPDATE, UNI__PHASES };

typedef enum uni__run_kind { UNI__RUN_TRAIN, UNI__RUN_TEST, UNI__RUN_PREDICT } uni__run_kind;

/* One batch to be run. */
typedef struct uni__job {
    uni__run_kind kind;
    const uni_batch *batch;
    uint64_t seed;
    const double *class_weight; /* by class number; NULL: none */
    int num_classes;
    const uni_replica *replica; /* other processes; NULL: alone */
    bool stop; /* this process wants to stop: tells the others */
} uni__job;

/* One replica's part. */
typedef struct uni__share {
    uni__runner *runner;
    int index;
    uni_tape *tape;
    uni_gradients *gradients;
    uni_metric **metrics; /* copies of the compiled ones: of one batch */
    uni_sync sync;
    bool pending; /* gradients holds batches that were not applied yet */
    int status;
    uni_error error;
    double samples, loss, output_loss[UNI_MODEL_MAX_INPUTS];
    uni_tensor *outputs[UNI_MODEL_MAX_INPUTS];
    uni_tensor *weights[UNI_MODEL_MAX_INPUTS]; /* of samples and classes, by output; NULL: none */
    uni_factors factors; /* of the dense layer that the backward pass is at */
    uni_descent_peers peers;
    uint64_t begun, forward_done, backward_done; /* nanoseconds */
} uni__share;

struct uni__runner {
    uni_model *model;
    int threads, replicas; /* as asked for */
    int tape_threads;
    int num_metrics;
    int count; /* replicas */
    int active; /* of the batch under way */
    uni__team *team;
    uni__share *shares;
    const float **buffers; /* the shares' gradients, for adding up */
    double *sums; /* for the other processes */
    size_t num_sums;
    const uni__job *job;
    int pending; /* batches since the last update */
    double pending_samples;
    /* Batches that wait for one update count alike, whatever their sizes: the samples of the first
     * one, and what this batch's gradient is multiplied by. */
    double reference, factor;
    bool update; /* this batch completes an update */
    bool stopping; /* some process wants to stop */
    uint64_t phases[UNI__PHASES]; /* nanoseconds of the last batch; input is fit's */
    uint64_t began;
};

/* Makes model->runner, or keeps it when it fits. threads and replicas 0: chosen. */
int uni__runner_prepare(uni_model *model, int threads, int replicas, int64_t batch_size,
                        uni_error *err) UNI_MUST_USE;
/* Runs the batch; totals go to model->compiled, predictions stay on the shares' tapes until the
 * next run. */
int uni__runner_run(uni__runner *runner, const uni__job *job, uni_error *err) UNI_MUST_USE;
/* Adds up `compiled`'s totals (of a test) with the other processes', and asks whether one wants to
 * stop. */
int uni__runner_reduce_totals(uni__runner *runner, const uni_replica *replica, bool stop,
                              uni_error *err) UNI_MUST_USE;

/* ---- update.c ---- */

/* Of this batch, over the replicas. */
double uni__runner_samples(const uni__runner *runner);
/* On each replica's thread, after its backward pass: they meet, and each updates its slice. */
int uni__runner_update_together(uni__runner *runner, uni__share *share);
/* One replica at work (the others may have gradients that wait): adds up and updates with the
 * kernels' threads. */
int uni__runner_update_alone(uni__runner *runner, uni_error *err) UNI_MUST_USE;
/* Training over processes: gradients and counts are added up with theirs, and the slice updated. */
int uni__runner_finish_with_others(uni__runner *runner, const uni__job *job,
                                   uni_error *err) UNI_MUST_USE;
/* What all processes counted, out of runner->sums, into the totals. */
void uni__runner_unpack(uni__runner *runner);

/* ---- share.c ---- */

/* Forward, loss, metrics and backward of one replica; its result is in share->status. */
void uni__share_run(uni__share *share, int64_t begin, int64_t end);
/* Floating-point operations of one sample's forward pass, estimated from kernels and outputs. */
double uni__model_flops(const uni_model *model);

#endif
