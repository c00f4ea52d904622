/* fault_functions.c - what goes wrong in the workers of faults.c and controllers.c: epochs with
 * trouble, ranks that do not listen, children that leave, reports without end. */
#include "train/shared.h"
#include "scenario.h"

#include <signal.h>

/* Epochs with a dictionary checkpoint each; at one of them, in one attempt, something bad happens
 * on one rank. */
static int epochs_with_trouble(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    uni_value *state = NULL;
    if (!uni_dict_get(config, "never_load"))
        UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    int64_t first = uni_dict_get_int(state, "epoch", -1) + 1,
            epochs = uni_dict_get_int(config, "epochs", 6);
    uni_value_free(state);
    for (int64_t epoch = first; epoch < epochs; epoch++) {
        bool mine =
            uni_session_info_of(session)->world_rank == uni_dict_get_int(config, "rank", 1) &&
            epoch == uni_dict_get_int(config, "at", 3) &&
            uni_session_info_of(session)->attempt <= uni_dict_get_int(config, "attempts", 1);
        if (mine) {
            /* Everything before is complete: the restart goes on exactly here. */
            if (epoch > 0 && !uni_dict_get(config, "no_checkpoint") &&
                !scenario_wait_checkpoint(uni_session_info_of(session)->run_dir, epoch))
                return uni_error_set(err, UNI_ETIMEOUT, "no checkpoint of epoch %d",
                                     (int)epoch - 1);
            scenario_sleep_ms((int)uni_dict_get_int(config, "settle_ms", 50));
            printf("trouble at epoch %d\n", (int)epoch);
            fflush(stdout);
            if (uni_dict_get(config, "signal"))
                raise((int)uni_dict_get_int(config, "signal", SIGKILL));
            if (uni_dict_get(config, "exit"))
                _exit((int)uni_dict_get_int(config, "exit", 0));
            if (uni_dict_get(config, "error"))
                return uni_error_set(err, UNI_EINVAL, "the loss exploded at epoch %d", (int)epoch);
        }
        uni_value *metrics = scenario_config("epoch", (double)epoch, "loss", 0.5, NULL);
        uni_value *next = scenario_config("epoch", (double)epoch, NULL);
        bool save =
            uni_session_info_of(session)->world_rank == 0 && !uni_dict_get(config, "no_checkpoint");
        int status = uni_session_report(
            session, metrics, &(uni_checkpoint_source){ .dict = save ? next : NULL }, err);
        uni_value_free(metrics);
        uni_value_free(next);
        UNI_TRY(status);
    }
    *result = uni_value_int(first);
    return 0;
}

/* Roles: the worker (rank 1) dies, is started again and asks the chief for something, who returns
 * instead of an answer, with the time. The server is done at once. */
static int leaves_early(uni_session *session, uni_value **result, uni_error *err)
{
    char key[UNI__SESSION_KEY_SIZE], path[4200];
    int from, fd = -1, rank = uni_session_info_of(session)->world_rank;
    size_t size;
    snprintf(path, sizeof path, "%s/lived", uni_session_info_of(session)->run_dir);
    if (rank > 1)
        return 0;
    if (rank == 1 && access(path, F_OK) != 0) {
        FILE *lived = fopen(path, "w");
        CHECK(lived && fclose(lived) == 0);
        raise(SIGKILL);
    }
    if (rank == 1)
        UNI_TRY(uni__session_send(session, 0, "here", &rank, sizeof rank, -1, err));
    int found = uni__session_receive(session, rank == 0 ? "here" : "answer", &from, key, &rank,
                                     sizeof rank, &size, &fd, 20000, err);
    UNI_TRY(found);
    *result = uni_value_float(scenario_ms());
    return 0;
}

/* Waits for a message with that key. */
static int wait_for(uni_session *session, const char *name, uni_error *err)
{
    char key[UNI__SESSION_KEY_SIZE];
    int from, fd = -1, number;
    size_t size;
    int found = uni__session_receive(session, name, &from, key, &number, sizeof number, &size, &fd,
                                     20000, err);
    return found == 0 ? uni_error_set(err, UNI_ETIMEOUT, "no message \"%s\" came", name) : found;
}

static int save(uni_session *session, const char *bytes, size_t size, uni_error *err)
{
    uni_value *dict = uni_value_dict();
    int status = uni_dict_take(dict, "w", uni_value_bytes(bytes, size));
    if (status == 0)
        status = uni_session_report(session, NULL, &(uni_checkpoint_source){ .dict = dict }, err);
    uni_value_free(dict);
    return status;
}

/* Roles: the chief keeps the disk busy with a large checkpoint; the worker (rank 1) hands in a
 * small one and dies before that is on the disk; started again, it waits for that and hands in
 * three more. */
static int member_saves(uni_session *session, uni_value **result, uni_error *err)
{
    static char large[150 << 20];
    char path[4200];
    int rank = uni_session_info_of(session)->world_rank;
    snprintf(path, sizeof path, "%s/lived", uni_session_info_of(session)->run_dir);
    if (rank == 0) {
        for (int i = 0; i < 3; i++)
            UNI_TRY(uni_session_report(session, NULL, NULL, err));
        UNI_TRY(save(session, large, sizeof large, err));
        UNI_TRY(uni__session_send(session, 1, "go", &rank, sizeof rank, -1, err));
        int found = wait_for(session, "saved", err);
        return found < 0 ? found : 0;
    }
    if (rank == 1 && access(path, F_OK) != 0) {
        FILE *lived = fopen(path, "w");
        CHECK(lived && fclose(lived) == 0);
        UNI_TRY(wait_for(session, "go", err));
        UNI_TRY(save(session, large, 10, err));
        raise(SIGKILL);
    }
    snprintf(path, sizeof path, "%s/checkpoints/checkpoint_000002",
             uni_session_info_of(session)->run_dir);
    for (int i = 0; rank == 1 && access(path, F_OK) != 0 && i < 2000; i++)
        scenario_sleep_ms(5);
    for (int i = 0; rank == 1 && i < 3; i++)
        UNI_TRY(save(session, large, 10, err));
    return rank == 1 ? uni__session_send(session, 0, "saved", &rank, sizeof rank, -1, err) : 0;
}

/* Reports for ever, at a pace of its own, until told to stop; returns the iteration at which it
 * stopped. */
static int until_stopped(uni_session *session, uni_value **result, uni_error *err)
{
    const uni_value *config = uni_session_info_of(session)->config;
    int64_t iteration = 0, ask_at = uni_dict_get_int(config, "ask_at", -1);
    uni_value *state = NULL;
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    int64_t first = uni_dict_get_int(state, "iteration", 0);
    uni_value_free(state);
    while (!uni_session_should_stop(session)) {
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "i" },
                                           (const double[]){ (double)++iteration }, err));
        if (iteration == ask_at && uni_session_info_of(session)->world_rank == 1)
            uni_session_request_stop(session);
        usleep((useconds_t)(200 * (1 + uni_session_info_of(session)->world_rank)));
    }
    /* The last checkpoint, just in time. */
    uni_value *last = scenario_config("iteration", (double)(first + iteration), NULL);
    int status = uni_session_save_checkpoint(session, last, err);
    uni_value_free(last);
    UNI_TRY(status);
    *result = uni_value_int(iteration);
    return 0;
}

static int deaf(uni_session *session, uni_value **result, uni_error *err)
{
    for (;;) {
        UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "i" },
                                           (const double[]){ 1 }, err));
        usleep(1000);
    }
}

/* Children that leave the session and the process group and ignore SIGTERM. */
static int with_children(uni_session *session, uni_value **result, uni_error *err)
{
    for (int i = 0; i < 2; i++)
        if (fork() == 0) {
            setsid();
            signal(SIGTERM, SIG_IGN);
            signal(SIGHUP, SIG_IGN);
            if (i == 1 && fork() > 0)
                _exit(0);
            for (;;)
                pause();
        }
    signal(SIGTERM, SIG_IGN);
    UNI_TRY(uni_session_report_numbers(session, 1, (const char *const[]){ "up" },
                                       (const double[]){ 1 }, err));
    for (;;)
        pause();
}

static int flood(uni_session *session, uni_value **result, uni_error *err)
{
    for (int i = 0; i < 2000000; i++)
        UNI_TRY(uni_session_report_numbers(session, 2, (const char *const[]){ "i", "loss" },
                                           (const double[]){ i, 0.123456789 / (i + 1) }, err));
    return 0;
}

/* Only rank 0 reports; it dies once, at epoch "die_at". */
static int chief_reports(uni_session *session, uni_value **result, uni_error *err)
{
    uni_value *state = NULL;
    int64_t die_at = uni_dict_get_int(uni_session_info_of(session)->config, "die_at", -1);
    if (uni_session_info_of(session)->world_rank != 0)
        return 0;
    UNI_TRY(uni_session_load_checkpoint(&state, session, err));
    int64_t first = uni_dict_get_int(state, "epoch", -1) + 1;
    uni_value_free(state);
    for (int64_t epoch = first; epoch < 4; epoch++) {
        if (first == 0 && epoch == die_at)
            raise(SIGKILL);
        uni_value *next = uni_value_dict();
        int status = uni_dict_take(next, "epoch", uni_value_int(epoch));
        if (status == 0)
            status =
                uni_session_report(session, NULL, &(uni_checkpoint_source){ .dict = next }, err);
        uni_value_free(next);
        UNI_TRY(status);
    }
    return 0;
}

/* As main would. */
static int returns_one(uni_session *session, uni_value **result, uni_error *err)
{
    return 1;
}

const uni_function functions[] = {
    { "returns_one", returns_one },     { "trouble", epochs_with_trouble },
    { "until_stopped", until_stopped }, { "deaf", deaf },
    { "with_children", with_children }, { "flood", flood },
    { "leaves_early", leaves_early },   { "member_saves", member_saves },
    { "chief_reports", chief_reports }, { NULL, NULL }
};
