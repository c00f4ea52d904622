/* pages.h - maps memory that ranks share, in huge pages where the machine has them. Any thread. */
#ifndef UNISONO_COMM_SHM_PAGES_H
#define UNISONO_COMM_SHM_PAGES_H

#include <stddef.h>

/* The file size to use for `bytes`. */
size_t uni__pages_room(size_t bytes);
/* Maps a file of `bytes` (from uni__pages_room) like mmap: MAP_FAILED with errno. Unmap with
 * munmap. */
void *uni__pages_map(int fd, size_t bytes);

#endif
