/*
 * runner.h - runs a batch through a model on replica threads, each with its tape and gradients. A
 * strategy over several processes, or the team of replicas itself, then updates the weights
 * (nn/step.h).
 *
 * fit, evaluate, predict and train_on_batch all use it. A batch is cut into one part per replica;
 * each runs forward (and backward) on its own tape. Losses and metrics are sums, gradients are sums
 * over samples, and the optimizer gets 1 / samples. With one replica it is the plain loop of
 * docs/engine.md. Nothing is allocated after the first steps. The model's thread calls; replica
 * threads belong to the runner.
 */
#ifndef UNISONO_NN_RUNNER_H
#define UNISONO_NN_RUNNER_H

#include "nn/model/compile.h"
#include "nn/step.h"

enum { UNI__PHASE_INPUT, UNI__PHASE_FORWARD, UNI__PHASE_BACKWARD, UNI__PHASE_UPDATE, UNI__PHASES };

typedef enum uni__run_kind { UNI__RUN_TRAIN, UNI__RUN_TEST, UNI__RUN_PREDICT } uni__run_kind;

/* One batch to be run. */
/* What a process wants after this step. Wishes are added up over all processes, as counts are. */
typedef enum uni__wish {
    UNI__WISH_NONE = 0,
    UNI__WISH_STOP = 1, /* fit ends as if its epochs were done */
    UNI__WISH_PAUSE = 1 << 20 /* fit is left as it stands, to be resumed by another process */
} uni__wish;

typedef struct uni__job {
    uni__run_kind kind;
    const uni_batch *batch;
    uint64_t seed;
    const double *class_weight; /* by class number; NULL: none */
    int num_classes;
    const uni__updater *updater; /* other processes; NULL: alone */
    uni__wish wish; /* of this process: tells the others */
} uni__job;

/* One replica's part of a batch. */
typedef struct uni__share {
    uni__runner *runner;
    int index;
    uni_tape *tape;
    uni_gradients *gradients;
    uni_metric **metrics; /* copies of the compiled ones, for one batch */
    uni_sync sync;
    bool pending; /* gradients contain batches that were not applied yet */
    int status;
    uni_error error;
    double samples, loss, output_loss[UNI_MODEL_MAX_INPUTS];
    uni_tensor *outputs[UNI_MODEL_MAX_INPUTS];
    uni_tensor *weights[UNI_MODEL_MAX_INPUTS]; /* of samples and classes, per output; NULL: none */
    uni__factors factors; /* of the dense layer that the backward pass has reached */
    uni__descent_peers peers;
    uint64_t begun, forward_done, backward_done; /* nanoseconds */
} uni__share;

struct uni__runner {
    uni_model *model;
    int threads, replicas; /* as requested */
    int tape_threads;
    int num_metrics;
    int count; /* replicas */
    int active; /* of the current batch */
    /* Threads of the replicas: helpers take any replica's part, where a pass needs no meeting in
     * its middle; otherwise each replica has a thread of the team. */
    uni__helpers *helpers;
    uni__team *team;
    bool meets; /* the current pass needs the team */
    uni__share *shares;
    const float **buffers; /* the shares' gradients, to be summed */
    double *sums; /* for the other processes */
    size_t num_sums;
    const uni__job *job;
    int pending; /* batches since the last update */
    double pending_samples;
    /* Batches that wait for one update have equal weight, whatever their size: the samples of the
     * first one, and the factor for this batch's gradient. */
    double reference, factor;
    bool update; /* this batch completes an update */
    bool clips_by_norm; /* its gradients; the first update builds the optimizer meanwhile */
    bool stopping, pausing; /* some process wants to */
    float *states_before; /* moving averages before the step, for one that is repeated */
    uint64_t phases[UNI__PHASES]; /* nanoseconds of the last batch; input is fit's */
    uint64_t began;
};

/* Creates model->runner, or keeps it if it matches. threads and replicas 0: chosen. */
int uni__runner_prepare(uni_model *model, int threads, int replicas, int64_t batch_size,
                        uni_error *err) UNI_MUST_USE;
/* Runs the batch. Totals go to model->compiled; predictions stay on the shares' tapes until the
 * next run. UNI__STEP_RECUT: it did not happen, and this process has another part of it now. */
int uni__runner_run(uni__runner *runner, const uni__job *job, uni_error *err) UNI_MUST_USE;
/* Drops the gradients of batches that wait for their update. */
void uni__runner_forget(uni__runner *runner);
/* Sums `compiled`'s totals (of a test) over all processes, and what one of them wishes. */
/* UNI__STEP_RECUT: the test must be repeated, with another part of the data. */
int uni__runner_reduce_totals(uni__runner *runner, const uni__updater *updater, uni__wish wish,
                              uni_error *err) UNI_MUST_USE;

/* ---- counts.c ---- */

/* Packs what the shares counted in this batch into runner->sums. */
void uni__runner_pack(uni__runner *runner, uni__wish wish);
/* Unpacks runner->sums, the counts of all processes, into the totals. */
void uni__runner_unpack(uni__runner *runner);

/* ---- share.c ---- */

/* Forward, loss, metrics and backward of one replica; the result is in share->status. */
void uni__share_run(uni__share *share, int64_t begin, int64_t end);
/* Kernels of this size are worth two meetings of the replicas: each has a gradient of 1 MiB less to
 * write and to sum. */
#define UNI__DESCENT_WEIGHTS ((size_t)1 << 18)
/* Floating-point operations of one sample's forward pass, estimated from kernels and outputs. */
double uni__model_flops(const uni_model *model);

#endif
