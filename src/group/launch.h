/* launch.h - how an agent comes to be on this machine. Only for this module. */
#ifndef UNISONO_GROUP_LAUNCH_H
#define UNISONO_GROUP_LAUNCH_H

#include <unisono/status.h>

/* Starts unisono-agent: *channel is our end of its socket, *alive the pipe whose end of file says that all is gone. */
int uni__launch_agent(int *channel, int *alive, uni_error *err) UNI_MUST_USE;

#endif
