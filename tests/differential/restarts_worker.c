/*
 * restarts_worker.c - the trainings of the net for restarts. Config: "strategy", "callbacks" (letters), "shuffle", "every", "backup", "accumulate", "steps" (of an epoch); where "rank" kills "victims" in its
 * first life: "epoch", "moment", "batch"; where the rank "again_rank" dies in its second one: "again"; and "files", where callbacks write.
 *
 * A life is a process of a rank: each appends its number to the file pids/RANK. With parameter servers only the coordinator runs callbacks, so it kills the others.
 *
 * The validation set follows another line than the training set, so that val_loss has its best in the middle and every callback has something to decide.
 */
#include <signal.h>

#include "restarts.h"

#define SAMPLES (RESTARTS_BATCHES * 6)
#define FEATURES 3

/* ---- dying ---- */

typedef struct killer {
    const uni_value *config;
    bool armed, last;
    int rank, epoch;
} killer;

static const char *pids_of(const uni_value *config, int64_t rank)
{
    static char path[4400];
    snprintf(path, sizeof path, "%s/%d", uni_dict_get_string(config, "pids", ""), (int)rank);
    return path;
}

/* The process of a rank: the newest one, or 0. *lives: how many there were. */
static pid_t process_of(const uni_value *config, int64_t rank, int *lives)
{
    long long pid = 0, next;
    *lives = 0;
    FILE *file = fopen(pids_of(config, rank), "r");
    while (file && fscanf(file, "%lld\n", &next) == 1) {
        pid = next;
        ++*lives;
    }
    if (file)
        fclose(file);
    return (pid_t)pid;
}

static int lives_of(const uni_value *config, int64_t rank)
{
    int lives;
    process_of(config, rank, &lives);
    return lives;
}

/* A process begins: the first thing that a train function does. */
static void begin_life(uni_session *session)
{
    const uni_value *config = uni_session_info_of(session)->config;
    FILE *file = fopen(pids_of(config, uni_session_info_of(session)->world_rank), "a");
    CHECK(file && fprintf(file, "%lld\n", (long long)getpid()) > 0 && fclose(file) == 0);
}

/* Kills the victims, this process last. A rank whose loop has not begun is waited for. */
static void kill_victims(const uni_value *config, int self)
{
    const uni_value *victims = uni_dict_get(config, "victims");
    bool also_self = false;
    for (size_t i = 0; i < uni_list_size(victims); i++) {
        int64_t rank = uni_value_as_int(uni_list_get(victims, i), -1);
        int lives = 0;
        pid_t pid = 0;
        also_self |= rank == self;
        for (int tries = 0; rank != self && pid == 0 && tries < 2000; tries++) {
            pid = process_of(config, rank, &lives);
            if (pid == 0)
                scenario_sleep_ms(1);
        }
        if (pid > 0)
            kill(pid, SIGKILL);
    }
    if (also_self)
        raise(SIGKILL);
}

static bool is_armed(uni_session *session)
{
    const uni_value *config = uni_session_info_of(session)->config;
    int rank = uni_session_info_of(session)->world_rank, lives = lives_of(config, rank);
    return rank == uni_dict_get_int(config, "rank", -1) &&
           (lives == 1 ||
            (lives == 2 && uni_dict_get_int(config, "again", 0) == RESTARTS_SAME_MOMENT));
}

/* The second death: in a rank's second life. */
static void die_again(uni_session *session, restarts_again at)
{
    const uni_value *config = uni_session_info_of(session)->config;
    int rank = uni_session_info_of(session)->world_rank;
    if (uni_dict_get_int(config, "again", 0) == at &&
        rank == uni_dict_get_int(config, "again_rank", -1) && lives_of(config, rank) == 2)
        raise(SIGKILL);
}

static void die_at(const killer *self, restarts_moment moment, int epoch)
{
    if (self->armed && uni_dict_get_int(self->config, "moment", -1) == moment &&
        (moment == RESTARTS_TRAIN_END || uni_dict_get_int(self->config, "epoch", -1) == epoch))
        kill_victims(self->config, self->rank);
}

static int epoch_begin(void *self, uni_model *model, int epoch, uni_error *err)
{
    killer *one = self;
    one->epoch = epoch;
    if (!one->last)
        die_at(one, RESTARTS_EPOCH_BEGIN, epoch);
    return 0;
}

static int batch_end(void *self, uni_model *model, int64_t batch, const uni_logs *logs,
                     uni_error *err)
{
    killer *one = self;
    if (one->last && batch == uni_dict_get_int(one->config, "batch", 1))
        die_at(one, RESTARTS_BATCH_END, one->epoch);
    return 0;
}

static int epoch_end(void *self, uni_model *model, int epoch, const uni_logs *logs, uni_error *err)
{
    die_at(self, ((killer *)self)->last ? RESTARTS_EPOCH_END_LAST : RESTARTS_EPOCH_END_FIRST,
           epoch);
    return 0;
}

static int after_epoch(void *self, uni_model *model, int epoch, const uni_logs *logs,
                       uni_error *err)
{
    die_at(self, ((killer *)self)->last ? RESTARTS_AFTER_LAST : RESTARTS_AFTER_FIRST, epoch);
    return 0;
}

static int train_end(void *self, uni_model *model, const uni_logs *logs, uni_error *err)
{
    if (((killer *)self)->last)
        die_at(self, RESTARTS_TRAIN_END, 0);
    return 0;
}

static int new_killer(uni_callback **out, uni_session *session, bool last, uni_error *err)
{
    static const uni_callback_class class_ = { .name = "killer",
                                               .epoch_begin = epoch_begin,
                                               .batch_end = batch_end,
                                               .epoch_end = epoch_end,
                                               .after_epoch = after_epoch,
                                               .train_end = train_end,
                                               .free = free };
    killer *self = calloc(1, sizeof *self);
    CHECK(self);
    self->config = uni_session_info_of(session)->config;
    self->last = last;
    self->rank = uni_session_info_of(session)->world_rank;
    self->armed = is_armed(session);
    return uni_callback_new(out, &class_, self, err);
}

/* ---- callbacks ---- */

static double schedule(void *context, int epoch, double rate, uni_error *err)
{
    return epoch == 0 ? rate : rate * 0.9;
}

static const char *file_in(const uni_value *config, const char *name)
{
    static char path[4400];
    snprintf(path, sizeof path, "%s/%s", uni_dict_get_string(config, "files", ""), name);
    return path;
}

/* By a letter: those that write files only where `chief`. */
static int new_callback(uni_callback **out, char letter, const uni_value *config, bool chief,
                        uni_error *err)
{
    *out = NULL;
    switch (letter) {
    case 'e':
        return uni_callback_early_stopping(out, &(uni_early_stopping_options){ .patience = 1 },
                                           err);
    case 'r':
        return uni_callback_early_stopping(
            out, &(uni_early_stopping_options){ .patience = 9, .restore_best_weights = true }, err);
    case 'p':
        return uni_callback_reduce_lr_on_plateau(
            out, &(uni_reduce_lr_options){ .factor = 0.5, .patience = 1, .cooldown = 1 }, err);
    case 's':
        return uni_callback_learning_rate_scheduler(out, schedule, NULL, 0, err);
    case 'n':
        return uni_callback_terminate_on_nan(out, err);
    default:
        break;
    }
    if (!chief)
        return 0;
    switch (letter) {
    case 'b':
        return uni_callback_model_checkpoint(
            out, file_in(config, "best.safetensors"),
            &(uni_model_checkpoint_options){ .save_best_only = true }, err);
    case 'm':
        return uni_callback_model_checkpoint(
            out, file_in(config, "model_{epoch:02d}_{val_loss:.4f}.safetensors"), NULL, err);
    case 'f':
        return uni_callback_model_checkpoint(
            out, file_in(config, "often_{epoch}_{batch}.safetensors"),
            &(uni_model_checkpoint_options){ .save_every_batches = 3 }, err);
    case 'c':
        return uni_callback_csv_logger(out, file_in(config, "log.csv"), ',', false, err);
    case 'a':
        return uni_callback_csv_logger(out, file_in(config, "added.csv"), ';', true, err);
    case 't':
        return uni_callback_tensorboard(out, file_in(config, "board"), 2, false, err);
    default:
        CHECK(!"a letter of a callback");
        return UNI_EINVAL;
    }
}

/* ---- the model and its data ---- */

static void make_data(float *x, float *y, float *vx, float *vy)
{
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = 1;
        vy[i] = 0.5f;
        for (int j = 0; j < FEATURES; j++) {
            x[i * FEATURES + j] = (float)((i * 7 + j * 5) % 11) / 11.0f - 0.5f;
            vx[i * FEATURES + j] = (float)((i * 5 + j * 3) % 13) / 13.0f - 0.5f;
            y[i] += 2 * x[i * FEATURES + j];
            vy[i] += vx[i * FEATURES + j];
        }
    }
}

static int new_model(uni_model **out, int accumulate, uni_error *err)
{
    uni_dense_options tanh = { .activation = "tanh" };
    UNI_TRY(uni_sequential_new(
        out, "net",
        UNI_LAYERS(uni_layer_input(UNI_F32, 1, (const int64_t[]){ FEATURES }),
                   uni_layer_dense(5, &tanh), uni_layer_dropout(0.2f), uni_layer_dense(1, NULL)),
        err));
    uni_model_set_seed(*out, 3);
    uni_optimizer *adam = NULL;
    UNI_TRY(
        uni_optimizer_new(&adam, "adam", &(uni_optimizer_options){ .learning_rate = 0.06 }, err));
    return uni_model_compile(
        *out,
        &(uni_compile_options){ .optimizer = adam,
                                .loss_name = "mse",
                                .gradient_accumulation_steps = accumulate,
                                .metric_names = (const char *const[]){ "mae", NULL } },
        err);
}

typedef struct training {
    uni_strategy *strategy;
    uni_model *model;
    uni_callback *callbacks[20];
    int num_callbacks;
    uni_value *history;
} training;

static int add_callbacks(training *self, uni_session *session, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    bool chief = uni_strategy_info_of(self->strategy)->is_chief;
    uni_callback **next = self->callbacks;
    const char *backup = uni_dict_get_string(config, "backup", NULL);
    UNI_TRY(new_killer(next, session, false, err));
    next++;
    /* The report in the middle: it must not matter where it stands. */
    const char *letters = uni_dict_get_string(config, "callbacks", "");
    size_t middle = strlen(letters) / 2;
    for (size_t i = 0; i <= strlen(letters); i++) {
        if (i == middle && backup)
            UNI_TRY(uni_callback_backup_and_restore(next++, file_in(config, "backup"),
                                                    uni_dict_get_int(config, "every", 0), false,
                                                    err));
        else if (i == middle)
            UNI_TRY(uni_callback_report_checkpoint(next++, session,
                                                   (int)uni_dict_get_int(config, "every", 1), err));
        if (letters[i])
            UNI_TRY(new_callback(next, letters[i], config, chief, err));
        if (letters[i] && *next)
            next++;
    }
    UNI_TRY(new_killer(next, session, true, err));
    self->num_callbacks = (int)(next + 1 - self->callbacks);
    return 0;
}

static int train(training *self, uni_session *session, uni_error *err)
{
    static float x[SAMPLES * FEATURES], y[SAMPLES], vx[SAMPLES * FEATURES], vy[SAMPLES];
    const uni_value *config = uni_session_info_of(session)->config;
    int epoch = 0;
    make_data(x, y, vx, vy);
    uni_column columns[] = {
        uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, x),
        uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, y),
        uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, FEATURES }, vx),
        uni_column_view(UNI_F32, 2, (const int64_t[]){ SAMPLES, 1 }, vy),
    };
    UNI_TRY(uni_strategy_open(&self->strategy, uni_dict_get_string(config, "strategy", "none"),
                              session, err));
    UNI_TRY(new_model(&self->model, (int)uni_dict_get_int(config, "accumulate", 0), err));
    if (!uni_dict_get(config, "backup"))
        UNI_TRY(uni_session_restore_model(&epoch, session, self->model, err));
    die_again(session, RESTARTS_RESTORED);
    UNI_TRY(uni_strategy_place(self->strategy, self->model, err));
    UNI_TRY(add_callbacks(self, session, err));
    uni_fit_options options = { .x = &columns[0],
                                .y = &columns[1],
                                .num_x = 1,
                                .num_y = 1,
                                .validation_x = &columns[2],
                                .validation_y = &columns[3],
                                .batch_size = SAMPLES / RESTARTS_BATCHES,
                                .epochs = RESTARTS_EPOCHS,
                                .initial_epoch = epoch,
                                .steps_per_epoch = uni_dict_get_int(config, "steps", 0),
                                .no_shuffle = !uni_dict_get_bool(config, "shuffle", true),
                                .callbacks = self->callbacks,
                                .num_callbacks = self->num_callbacks };
    return uni_strategy_fit(&self->history, self->strategy, self->model, &options, err);
}

int restarts_fit(uni_session *session, uni_value **result, uni_error *err)
{
    training self = { 0 };
    uni_value *weights = NULL;
    begin_life(session);
    die_again(session, RESTARTS_AT_START);
    int status = train(&self, session, err);
    /* Parameter servers: only the coordinator has something to return. */
    if (status == 0 && self.history)
        status = uni_model_get_weights(&weights, self.model, err);
    if (status == 0 && self.history) {
        *result = uni_value_dict();
        CHECK(uni_dict_take(*result, "weights", weights) == 0);
        CHECK(uni_dict_take(*result, "history", self.history) == 0);
        self.history = NULL;
    }
    uni_value_free(self.history);
    for (int i = 0; i < self.num_callbacks; i++)
        uni_callback_free(self.callbacks[i]);
    uni_model_free(self.model);
    uni_strategy_free(self.strategy);
    return status;
}

/* A loop of one's own over the session: a number that depends on every step, saved as a dictionary or as a directory. */
int restarts_loop(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    int rank = uni_session_info_of(session)->world_rank;
    begin_life(session);
    die_again(session, RESTARTS_AT_START);
    bool armed = is_armed(session),
         saves = uni_dict_get_bool(config, "all_ranks", false) || rank == 0,
         directories = uni_dict_get_bool(config, "directories", false);
    int64_t moment = uni_dict_get_int(config, "moment", -1),
            at = uni_dict_get_int(config, "epoch", -1), first = 0;
    double number = 0;
    char name[64];
    snprintf(name, sizeof name, "number.rank_%d", rank);
    uni_checkpoint *checkpoint = NULL;
    uni_value *state = NULL;
    if (directories) {
        UNI_TRY(uni_session_get_checkpoint(&checkpoint, session, err));
        if (checkpoint) {
            char path[4400];
            long long epoch;
            snprintf(path, sizeof path, "%s/%s", uni_checkpoint_info_of(checkpoint)->path,
                     uni_dict_get_bool(config, "all_ranks", false) ? name : "number.rank_0");
            FILE *file = fopen(path, "r");
            CHECK(file && fscanf(file, "%lld %la", &epoch, &number) == 2);
            fclose(file);
            first = epoch + 1;
        }
        uni_checkpoint_close(checkpoint);
    } else {
        UNI_TRY(uni_session_load_checkpoint(&state, session, err));
        first = uni_dict_get_int(state, "epoch", -1) + 1;
        number = uni_dict_get_float(state, "number", 0);
        uni_value_free(state);
    }
    die_again(session, RESTARTS_RESTORED);
    for (int64_t epoch = first; epoch < RESTARTS_EPOCHS; epoch++) {
        if (armed && moment == RESTARTS_EPOCH_BEGIN && epoch == at)
            kill_victims(config, rank);
        number = number * 0.75 + (double)epoch + 1;
        uni_value *metrics = uni_value_dict(), *next = uni_value_dict();
        double loss = (number - 5) * (number - 5);
        CHECK(uni_dict_take(metrics, "val_loss", uni_value_float(loss)) == 0);
        CHECK(uni_dict_take(next, "epoch", uni_value_int(epoch)) == 0);
        CHECK(uni_dict_take(next, "number", uni_value_float(number)) == 0);
        char *directory = NULL;
        if (saves && directories) {
            char path[4400];
            UNI_TRY(uni_session_checkpoint_dir(&directory, session, err));
            snprintf(path, sizeof path, "%s/%s", directory, name);
            FILE *file = fopen(path, "w");
            CHECK(file && fprintf(file, "%lld %la\n", (long long)epoch, number) > 0 &&
                  fclose(file) == 0);
        }
        if (armed && moment == RESTARTS_AFTER_FIRST && epoch == at)
            kill_victims(config, rank);
        uni_checkpoint_source source = { .dict = saves && !directories ? next : NULL,
                                         .directory = directory };
        UNI_TRY(uni_session_report(session, metrics, &source, err));
        free(directory);
        uni_value_free(metrics);
        uni_value_free(next);
        if (armed && moment == RESTARTS_AFTER_LAST && epoch == at)
            kill_victims(config, rank);
    }
    *result = uni_value_float(number);
    return 0;
}
