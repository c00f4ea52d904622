/* check_network.c - the addresses of this machine, and which of them the hosts of a run would
 * connect to (docs/hosts.md). Sends nothing. */
#include "cli/check.h"
#include "group/network.h"

void cli_check_network(cli_findings *findings, const char *interface)
{
    static const char section[] = "Network (for --launcher ssh, mpi and slurm)";
    uni__judged all[UNI__NETWORK_MAX];
    int count = uni__network_judge(interface, all), chosen = 0;
    for (int i = 0; i < count; i++) {
        const uni__address *address = &all[i].address;
        chosen += all[i].chosen;
        cli_finding_add(findings, section, all[i].chosen ? CLI_LEVEL_OK : CLI_LEVEL_ABSENT,
                        address->interface, "%s/%d  %s: %s", address->text, address->prefix,
                        all[i].chosen ? "chosen" : "not chosen", all[i].why);
    }
    if (chosen > 0)
        return;
    if (interface)
        cli_finding_add(findings, section, CLI_LEVEL_ERROR, "--interface",
                        "no address of this machine matches %.100s", interface);
    else
        cli_finding_add(findings, section, CLI_LEVEL_ABSENT, "other hosts",
                        "unreachable: only the loopback interface is up");
}
