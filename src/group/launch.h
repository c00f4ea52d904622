/* launch.h - how an agent comes to be on this machine. */
#ifndef UNISONO_GROUP_LAUNCH_H
#define UNISONO_GROUP_LAUNCH_H

#include <stddef.h>
#include <unisono/status.h>

/* The full path of one of our helper programs (unisono-agent, unisono-host): `variable` of the
 * environment may name it. */
int uni__find_helper(const char *name, const char *variable, char *out, size_t size,
                     uni_error *err) UNI_MUST_USE;

/* Starts unisono-agent: *channel is our end of its socket, *alive the pipe whose end of file says
 * that all is gone. With a template (its socket; -1: none) the agent is forked from that, if it
 * answers. */
int uni__launch_agent(int template_fd, int *channel, int *alive, uni_error *err) UNI_MUST_USE;

#endif
