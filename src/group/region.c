/* region.c - see region.h. */
#include "group/region.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SIZE_LIMIT (1ull << 40)

static uni__region *map(uint64_t size, int protection, int flags, int fd)
{
    uni__region *region = size > 0 && size <= SIZE_LIMIT ? malloc(sizeof *region) : NULL;
    if (!region)
        return NULL;
    *region = (uni__region){ .references = 1, .size = (size_t)size };
    region->memory = mmap(NULL, region->size, protection, flags, fd, 0);
    if (region->memory != MAP_FAILED)
        return region;
    free(region);
    return NULL;
}

uni__region *uni__region_map(int fd)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) < 0 || info.st_size <= 0)
        return NULL;
    return map((uint64_t)info.st_size, PROT_READ, MAP_SHARED, fd);
}

uni__region *uni__region_new(uint64_t size)
{
    return map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

uni__region *uni__region_ref(uni__region *region)
{
    if (region)
        atomic_fetch_add(&region->references, 1);
    return region;
}

void uni__region_unref(uni__region *region)
{
    if (!region || atomic_fetch_sub(&region->references, 1) > 1)
        return;
    munmap(region->memory, region->size);
    free(region);
}
