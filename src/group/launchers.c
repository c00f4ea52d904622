/* launchers.c - see launchers.h. */
#include "group/launchers.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/process.h"
#include "base/text.h"

#define MAX_SLOTS 4096
#define COMMAND_MAX (256u << 10) /* bytes of a daemon's command line */
#define CONNECTIONS_MAX (16u << 20) /* bytes of /proc/net/tcp */
#define DAEMON_LEVELS 16 /* processes between us and the daemon */

/* ---- lists of hosts ---- */

static int add_host(uni__host_slots **list, int *count, const char *name, size_t length, int slots,
                    uni_error *err)
{
    if (length == 0 || length >= sizeof(*list)->name || name[0] == '-')
        return uni_error_set(err, UNI_EINVAL, "\"%.*s\" is not a valid host name", (int)length,
                             name);
    if (memchr(name, '@', length))
        return uni_error_set(err, UNI_EINVAL,
                             "\"%.*s\" is not a valid host name: name the user in ~/.ssh/config",
                             (int)length, name);
    for (size_t i = 0; i < length; i++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", name[i]))
            return uni_error_set(err, UNI_EINVAL, "\"%.*s\" is not a valid host name", (int)length,
                                 name);
    for (int i = 0; i < *count; i++)
        if (strlen((*list)[i].name) == length && strncmp((*list)[i].name, name, length) == 0)
            return uni_error_set(err, UNI_EINVAL, "host %.*s is named twice", (int)length, name);
    uni__host_slots *grown = realloc(*list, (size_t)(*count + 1) * sizeof *grown);
    if (!grown)
        return uni_error_set(err, UNI_ENOMEM, "no memory for the list of hosts");
    *list = grown;
    grown[*count] = (uni__host_slots){ .slots = slots };
    memcpy(grown[(*count)++].name, name, length);
    return 0;
}

int uni__hosts_parse(const char *text, uni__host_slots **out, int *count, uni_error *err)
{
    *out = NULL;
    *count = 0;
    int status = 0;
    for (const char *at = text; status == 0 && *at;) {
        size_t length = strcspn(at, ","), name = strcspn(at, ":,");
        long slots = 1;
        char *end = NULL;
        if (name < length) {
            slots = strtol(at + name + 1, &end, 10);
            if (end != at + length || slots < 1 || slots > MAX_SLOTS)
                status = uni_error_set(err, UNI_EINVAL,
                                       "--hosts: \"%.*s\": write NAME:SLOTS, for example a:2,b:2",
                                       (int)length, at);
        }
        if (status == 0)
            status = add_host(out, count, at, name, (int)slots, err);
        at += length + (at[length] == ',');
    }
    if (status == 0 && *count == 0)
        status = uni_error_set(err, UNI_EINVAL, "--hosts is empty: write a:2,b:2");
    if (status < 0) {
        free(*out);
        *out = NULL;
        *count = 0;
    }
    return status;
}

/* One part of Slurm's list: "n[01-03,7]" or "m". */
static int add_slurm_part(uni__host_slots **list, int *count, const char *part, size_t length,
                          uni_error *err)
{
    const char *open = memchr(part, '[', length);
    char name[300];
    if (!open)
        return add_host(list, count, part, length, 1, err);
    const char *at = open + 1, *close = part + length - 1;
    while (at < close) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        int width = (int)(end - at);
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (end == at || last < first || last - first > MAX_SLOTS)
            return uni_error_set(err, UNI_EFORMAT, "Slurm's list of nodes is not understood: %.*s",
                                 (int)length, part);
        for (long number = first; number <= last; number++) {
            snprintf(name, sizeof name, "%.*s%0*ld", (int)(open - part), part, width, number);
            UNI_TRY(add_host(list, count, name, strlen(name), 1, err));
        }
        at = end + (*end == ',');
    }
    return 0;
}

int uni__hosts_parse_slurm(const char *nodes, const char *tasks, uni__host_slots **out, int *count,
                           uni_error *err)
{
    *out = NULL;
    *count = 0;
    for (const char *at = nodes; *at;) {
        size_t length = 0;
        for (int depth = 0; at[length] && (depth > 0 || at[length] != ','); length++)
            depth += (at[length] == '[') - (at[length] == ']');
        int status = add_slurm_part(out, count, at, length, err);
        if (status < 0) {
            free(*out);
            *out = NULL;
            return status;
        }
        at += length + (at[length] == ',');
    }
    int node = 0;
    for (const char *at = tasks; at && *at && node < *count;) {
        char *end;
        long slots = strtol(at, &end, 10), times = 1;
        if (strncmp(end, "(x", 2) == 0)
            times = strtol(end + 2, &end, 10);
        for (; times > 0 && node < *count && slots > 0; times--)
            (*out)[node++].slots = (int)slots;
        const char *comma = strchr(end, ',');
        at = comma ? comma + 1 : NULL;
    }
    return 0;
}

/* ---- command lines ---- */

static int find_in_path(const char *name, char *out, size_t size)
{
    const char *path = getenv("PATH");
    if (strchr(name, '/'))
        return snprintf(out, size, "%s", name) < (int)size && access(out, X_OK) == 0 ? 0 : -1;
    for (const char *at = path ? path : "/usr/bin:/bin"; *at;) {
        size_t length = strcspn(at, ":");
        if (length > 0 && snprintf(out, size, "%.*s/%s", (int)length, at, name) < (int)size &&
            access(out, X_OK) == 0)
            return 0;
        at += length + (at[length] == ':');
    }
    return -1;
}

static int words(uni_value *list, const char *const *more)
{
    int status = 0;
    for (; *more && status == 0; more++)
        status = uni_list_take(list, uni_value_string(*more));
    return status;
}

/* The end of a launcher's words: the list is the caller's, or freed. */
static int give_words(uni_value *list, int status, uni_value **argv, uni_error *err)
{
    if (status == 0) {
        *argv = list;
        return 0;
    }
    uni_value_free(list);
    return uni_error_set(err, UNI_ENOMEM, "no memory for the launcher's command line");
}

/* How many ranks of the plan each host gets: slot by slot in the order of the list. */
static int share(const uni__launcher_plan *plan, int host, int *before)
{
    int at = 0;
    for (int i = 0; i <= host; i++) {
        int slots = plan->hosts[i].lost ? 0 : plan->hosts[i].slots;
        int mine = slots < plan->num_workers - at ? slots : plan->num_workers - at;
        if (i == host) {
            *before = at;
            return mine;
        }
        at += mine;
    }
    return 0;
}

uni_value *uni__launcher_names(const uni__launcher_plan *plan)
{
    uni_value *names = uni_value_list();
    for (int i = 0, before; i < plan->num_hosts; i++)
        for (int mine = share(plan, i, &before); mine > 0; mine--)
            if (uni_list_take(names, uni_value_string(plan->hosts[i].name)) < 0)
                return names;
    return names;
}

/* "a:2,b:2", or with_slots false "a,b". */
static char *join_hosts(const uni__launcher_plan *plan, bool with_slots)
{
    uni__text text = { 0 };
    for (int i = 0, before; i < plan->num_hosts; i++) {
        int mine = share(plan, i, &before);
        if (mine > 0)
            uni__text_add_format(&text, "%s%s", text.size ? "," : "", plan->hosts[i].name);
        if (mine > 0 && with_slots)
            uni__text_add_format(&text, ":%d", mine);
    }
    if (text.failed)
        uni__text_free(&text);
    return text.data;
}

static bool is_openmpi(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *name = slash ? slash + 1 : program;
    return !strstr(name, "hydra") && !strstr(name, "mpich") && !strstr(name, "srun");
}

static int mpi_words(const uni__launcher_plan *plan, uni_value **argv, uni_error *err)
{
    static const char forwarded[] = UNI__JOIN_VARIABLE "," UNI__SECRET_FILE_VARIABLE;
    char program[PATH_MAX], count[16];
    const char *asked = getenv("UNISONO_MPIRUN");
    *argv = NULL;
    if (find_in_path(asked && asked[0] ? asked : "mpirun", program, sizeof program) < 0)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "%s cannot be executed: install an MPI (Debian: openmpi-bin), or set "
                             "UNISONO_MPIRUN",
                             asked && asked[0] ? asked : "mpirun");
    char *hosts = join_hosts(plan, true);
    uni_value *list = uni_value_list();
    snprintf(count, sizeof count, "%d", plan->num_workers);
    int status = hosts ? 0 : UNI_ENOMEM;
    if (status == 0 && !is_openmpi(program)) {
        status = words(list, (const char *[]){ program, "-pmi-port", "-disable-auto-cleanup",
                                               "-hosts", hosts, "-n", count, "-genvlist", forwarded,
                                               plan->agent, NULL });
    } else if (status == 0) {
        status =
            words(list, (const char *[]){ program, "--host", hosts, "-np", count, "--map-by",
                                          "slot", "--bind-to", "none", "-x", UNI__JOIN_VARIABLE,
                                          "-x", UNI__SECRET_FILE_VARIABLE, NULL });
        if (status == 0 && geteuid() == 0)
            status = words(list, (const char *[]){ "--allow-run-as-root", NULL });
        if (status == 0 && plan->subnet)
            status =
                words(list, (const char *[]){ "--mca", "btl_tcp_if_include", plan->subnet, "--mca",
                                              "oob_tcp_if_include", plan->subnet, NULL });
        if (status == 0)
            status = words(list, (const char *[]){ plan->agent, NULL });
    }
    free(hosts);
    return give_words(list, status, argv, err);
}

static int slurm_words(const uni__launcher_plan *plan, uni_value **argv, uni_error *err)
{
    char program[PATH_MAX], count[32], nodes[32];
    int used = 0;
    *argv = NULL;
    if (find_in_path("srun", program, sizeof program) < 0)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "srun is not in PATH: --launcher slurm needs Slurm (Debian: "
                             "slurm-client)");
    char *hosts = join_hosts(plan, false), *list_option = NULL;
    uni_value *list = uni_value_list();
    snprintf(count, sizeof count, "--ntasks=%d", plan->num_workers);
    /* Otherwise the whole allocation's number of nodes would be asked for, a lost one among
     * them. */
    for (int i = 0, before; i < plan->num_hosts; i++)
        used += share(plan, i, &before) > 0;
    snprintf(nodes, sizeof nodes, "--nodes=%d", used);
    int status = hosts && asprintf(&list_option, "--nodelist=%s", hosts) >= 0 ? 0 : UNI_ENOMEM;
    /* One step for all; a task that ends badly is our business, not a reason to end the step. */
    if (status == 0)
        status = words(list, (const char *[]){ program, "--mpi=pmix", count, nodes, list_option,
                                               "--distribution=block", "--export=ALL", "--overlap",
                                               "--kill-on-bad-exit=0", "--wait=0", "--quiet",
                                               plan->agent, NULL });
    free(hosts);
    free(list_option);
    return give_words(list, status, argv, err);
}

/* The agent itself starts one ssh for each host (train/remote/host_ssh.c). */
static int ssh_words(const uni__launcher_plan *plan, uni_value **argv, uni_error *err)
{
    char program[PATH_MAX];
    const char *asked = getenv("UNISONO_SSH");
    *argv = NULL;
    if (find_in_path(asked && asked[0] ? asked : "ssh", program, sizeof program) < 0)
        return uni_error_set(err, UNI_ENOTFOUND,
                             "%s cannot be executed: install OpenSSH's client (Debian: "
                             "openssh-client), or set UNISONO_SSH",
                             asked && asked[0] ? asked : "ssh");
    char *hosts = join_hosts(plan, true), place[32] = "";
    uni_value *list = uni_value_list();
    if (plan->num_all > 0)
        snprintf(place, sizeof place, "%d:%d", plan->first_rank, plan->num_all);
    int status = hosts ? words(list, (const char *[]){ plan->agent, "--ssh", program, hosts,
                                                       place[0] ? place : NULL, NULL })
                       : UNI_ENOMEM;
    free(hosts);
    return give_words(list, status, argv, err);
}

static const uni__launcher launchers[] = {
    { .name = "mpi", .program = "mpirun", .words = mpi_words, .offers_mpi = true },
    { .name = "slurm",
      .program = "srun",
      .words = slurm_words,
      .has_allocation = true,
      .offers_mpi = true,
      .term_is_stop = true },
    { .name = "ssh",
      .program = "ssh",
      .words = ssh_words,
      .term_is_stop = true,
      .is_outlived = true },
};

const uni__launcher *uni__launcher_find(const char *name)
{
    for (size_t i = 0; i < sizeof launchers / sizeof launchers[0]; i++)
        if (strcmp(launchers[i].name, name) == 0)
            return &launchers[i];
    return NULL;
}

bool uni__launcher_is_openmpi(const uni__launcher *launcher, const char *program)
{
    return launcher->words == mpi_words && is_openmpi(program);
}

/* ---- what Open MPI leaves behind ---- */

const char *uni__launcher_session(void)
{
    return getenv("OMPI_MCA_orte_jobfam_session_dir");
}

/* Only what is named as Open MPI names it, and ours: "BASE/ompi.HOST.UID/jf.N" or ".../pid.N". */
void uni__launcher_remove_session(const char *directory)
{
    struct stat info;
    const char *last = directory ? strrchr(directory, '/') : NULL, *before = last;
    while (before && before > directory && *(before - 1) != '/')
        before--;
    if (!last || before == last || strncmp(before, "ompi.", 5) != 0 ||
        (strncmp(last, "/jf.", 4) != 0 && strncmp(last, "/pid.", 5) != 0) ||
        lstat(directory, &info) < 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
        return;
    /* Its daemon may be at the same work: what vanishes meanwhile is not an error. */
    for (int tries = 0; tries < 10 && uni__remove_tree(directory, NULL) < 0; tries++)
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
}

void uni__launcher_remove_session_of(int pid)
{
    const char *base = getenv("TMPDIR");
    char pattern[PATH_MAX];
    glob_t found = { 0 };
    snprintf(pattern, sizeof pattern, "%s/ompi.*.%u/pid.%d", base && base[0] ? base : "/tmp",
             (unsigned)geteuid(), pid);
    if (pid > 0 && glob(pattern, GLOB_NOSORT, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            uni__launcher_remove_session(found.gl_pathv[i]);
    globfree(&found);
}

/* ---- the other side ---- */

static int number_of(const char *const *names)
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text && text[0] >= '0' && text[0] <= '9')
            return atoi(text);
    }
    return -1;
}

bool uni__launched_look(uni__launched *out)
{
    static const char *const rank[] = { "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_ID",
                                        "SLURM_PROCID", NULL },
                             *const size[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS",
                                               NULL },
                             *const local[] = { "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                                "SLURM_LOCALID", NULL },
                             *const local_size[] = { "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                     "MPI_LOCALNRANKS", NULL };
    memset(out, 0, sizeof *out);
    bool by_mpi = getenv("OMPI_COMM_WORLD_RANK") || getenv("PMI_RANK") || getenv("PMI_ID");
    const char *step = getenv("SLURM_STEP_ID"), *job = getenv("SLURM_JOB_ID");
    /* A batch script has SLURM_PROCID too, but no step of its own that would have started
     * several. */
    if (!by_mpi && (!step || !getenv("SLURM_PROCID")))
        return false;
    out->rank = number_of(rank);
    out->size = number_of(size);
    if (out->size < 0)
        out->size = out->rank + 1; /* Hydra with a port instead of a descriptor does not say */
    out->local_rank = number_of(local);
    out->local_size = number_of(local_size);
    if (out->local_size < 0 && getenv("SLURM_STEP_TASKS_PER_NODE")) {
        /* "2(x2),1": ours is at our node's place. */
        const char *at = getenv("SLURM_STEP_TASKS_PER_NODE");
        int node = number_of((const char *const[]){ "SLURM_NODEID", NULL });
        while (at && out->local_size < 0) {
            char *end;
            long tasks = strtol(at, &end, 10), times = 1;
            if (strncmp(end, "(x", 2) == 0)
                times = strtol(end + 2, &end, 10);
            if (node < times)
                out->local_size = (int)tasks;
            node -= (int)times;
            at = strchr(end, ',') ? strchr(end, ',') + 1 : NULL;
        }
    }
    const char *space = getenv("PMIX_NAMESPACE"), *pmi = getenv("PMI_JOBID");
    out->launcher = by_mpi ? "mpi" : "slurm";
    if (by_mpi)
        snprintf(out->job, sizeof out->job, "%.120s", space ? space : pmi ? pmi : "mpi");
    else
        snprintf(out->job, sizeof out->job, "slurm-%.50s.%.50s", job ? job : "", step);
    for (char *at = out->job; *at; at++)
        if (*at == '/' || (unsigned char)*at <= 0x20)
            *at = '_';
    return out->rank >= 0 && out->size > out->rank && out->local_rank >= 0;
}

/* ---- the daemon above us ---- */

static void name_of(int pid, char *out, size_t size)
{
    char path[64], *text = NULL;
    size_t length = 0;
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    bool known = uni__read_file(&text, &length, path, 4096, NULL) == 0;
    snprintf(out, size, "%.*s", known ? (int)strcspn(text, "\n") : 6, known ? text : "daemon");
    free(text);
}

static bool is_daemon(const char *name)
{
    static const char *const known[] = { "orted",           "prted",          "mpirun",
                                         "prterun",         "mpiexec",        "mpiexec.hydra",
                                         "hydra_pmi_proxy", "hydra_bstrap_p", "slurmstepd" };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    return false;
}

/* From the daemon's arguments: Open MPI's "orte_hnp_uri", "JOB;tcp://ADDRESS,ADDRESS:PORT"; Hydra's
 * "--control-port", "HOST:PORT". */
static int home_port_of(int pid)
{
    char path[64], *text = NULL;
    size_t size = 0;
    int port = 0;
    snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
    if (uni__read_file(&text, &size, path, COMMAND_MAX, NULL) < 0)
        return 0;
    for (size_t at = 0; at < size && port == 0; at += strlen(text + at) + 1) {
        const char *word = text + at, *value = word + strlen(word) + 1;
        const char *colon = value < text + size ? strrchr(value, ':') : NULL;
        if (colon && (strcmp(word, "orte_hnp_uri") == 0 || strcmp(word, "--control-port") == 0))
            port = atoi(colon + 1);
    }
    free(text);
    return port > 0 && port <= 65535 ? port : 0;
}

void uni__launcher_daemon_find(uni__launcher_daemon *out)
{
    uni__process process = { 0 };
    int pid = getppid();
    *out = (uni__launcher_daemon){ .pid = pid > 1 ? pid : 0, .parent = pid, .is_parent = true };
    name_of(pid, out->name, sizeof out->name);
    for (int level = 0; level < DAEMON_LEVELS && pid > 1; level++, pid = process.parent) {
        char name[32];
        if (!uni__process_look(pid, &process))
            return;
        name_of(pid, name, sizeof name);
        if (!is_daemon(name))
            continue;
        *out = (uni__launcher_daemon){ .pid = pid,
                                       .parent = out->parent,
                                       .is_parent = level == 0,
                                       .start_time = process.start_time,
                                       .home_port = home_port_of(pid) };
        memcpy(out->name, name, sizeof name);
        return;
    }
}

bool uni__launcher_daemon_is_gone(const uni__launcher_daemon *daemon)
{
    uni__process process = { 0 };
    if (daemon->pid == 0)
        return false;
    if (daemon->is_parent)
        return getppid() != daemon->pid;
    return !uni__process_look(daemon->pid, &process) || process.start_time != daemon->start_time ||
           process.exiting;
}

/* Lines of /proc/net/tcp: "N: ADDRESS:PORT ADDRESS:PORT STATE ...", in hexadecimal; 1 is
 * established. */
static bool is_connected(int pid, const char *file, int port)
{
    char path[64], *text = NULL, *rest = NULL;
    size_t size = 0;
    unsigned remote, state;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/net/%s", pid, file);
    if (uni__read_file(&text, &size, path, CONNECTIONS_MAX, NULL) < 0)
        return strcmp(file, "tcp") == 0; /* not known */
    for (char *line = strtok_r(text, "\n", &rest); line && !found;
         line = strtok_r(NULL, "\n", &rest))
        found = sscanf(line, " %*d: %*[0-9A-F]:%*x %*[0-9A-F]:%x %x", &remote, &state) == 2 &&
                (int)remote == port && state == 1;
    free(text);
    return found;
}

bool uni__launcher_daemon_is_cut(const uni__launcher_daemon *daemon)
{
    if (uni__launcher_daemon_is_gone(daemon))
        return !daemon->is_parent && getppid() != daemon->parent;
    return daemon->pid != 0 && daemon->home_port != 0 &&
           !is_connected(daemon->pid, "tcp", daemon->home_port) &&
           !is_connected(daemon->pid, "tcp6", daemon->home_port);
}
