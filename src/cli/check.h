/* check.h - findings of `unisono check`. For the check_*.c files only. Thread: main. */
#ifndef UNISONO_CLI_CHECK_H
#define UNISONO_CLI_CHECK_H

#include <stdarg.h>

#include "cli/command.h"

typedef enum cli_level {
    CLI_LEVEL_OK,
    CLI_LEVEL_ABSENT,
    CLI_LEVEL_WARNING,
    CLI_LEVEL_ERROR
} cli_level;

typedef struct cli_finding {
    const char *section;
    char name[40];
    char text[400];
    cli_level level;
} cli_finding;

#define CLI_MAX_FINDINGS 64

typedef struct cli_findings {
    cli_finding items[CLI_MAX_FINDINGS];
    size_t count;
} cli_findings;

void cli_finding_add(cli_findings *findings, const char *section, cli_level level, const char *name,
                     const char *format, ...) UNI_PRINTF(5, 6);

void cli_check_machine(cli_findings *findings); /* cores, memory, limits, GPUs */
/* Is it writable, and how much is free. */
void cli_check_storage(cli_findings *findings, const char *storage);
/* Addresses, and which ones are used. */
void cli_check_network(cli_findings *findings, const char *interface);
void cli_check_software(cli_findings *findings, bool fast); /* MPI, Slurm, Python, plug-ins */

/* check_hosts.c: checks the hosts of a run before it starts. Returns an exit code (1 if a host is
 * unusable), or an error. */
typedef struct cli_hosts_request {
    const char *hosts, *launcher, *interface, *storage; /* hosts NULL: those of the Slurm job */
} cli_hosts_request;
int cli_check_hosts(cli_context *context, const cli_hosts_request *request, bool json,
                    uni_error *err) UNI_MUST_USE;

#endif
