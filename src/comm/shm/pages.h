/* pages.h - mappings of memory that ranks share, in huge pages where the machine has them. Any thread. */
#ifndef UNISONO_COMM_SHM_PAGES_H
#define UNISONO_COMM_SHM_PAGES_H

#include <stddef.h>

/* How large the file for so many bytes is to be. */
size_t uni__pages_room(size_t bytes);
/* Maps a file of so many bytes (what uni__pages_room said), like mmap: MAP_FAILED with errno. munmap takes it back. */
void *uni__pages_map(int fd, size_t bytes);

#endif
