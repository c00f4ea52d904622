/* link_shm.h - links in the board's memory. Only for src/strategy/server. */
#ifndef UNISONO_STRATEGY_SERVER_LINK_SHM_H
#define UNISONO_STRATEGY_SERVER_LINK_SHM_H

#include "strategy/server/link.h"

extern const uni__server_link_class uni__server_link_shm;

#endif
