/* template.h - the far end of uni__launch_agent's template: a process that forks agents, which fork
 * workers. */
#ifndef UNISONO_GROUP_TEMPLATE_H
#define UNISONO_GROUP_TEMPLATE_H

#include <unisono/status.h>

#include "group/agent.h"

/* Serves requests on fd (a socket of sequenced packets; each brings the two descriptors of an
 * agent) until its other end is closed: 0. In a worker that was forked: 1, with the worker's
 * environment, directory and descriptors. */
int uni__template_serve(int fd, const uni__fork_hooks *hooks, uni_error *err) UNI_MUST_USE;

/* Asks the template at fd for an agent with these two descriptors. An error when it is gone or busy
 * for seconds. */
int uni__template_ask(int fd, int channel, int alive, uni_error *err) UNI_MUST_USE;

#endif
