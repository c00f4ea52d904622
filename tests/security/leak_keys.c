/*
 * leak_keys.c - for LD_PRELOAD: appends every X25519 key pair that a process makes to the file in
 * UNISONO_TEST_LEAK, as two words in hexadecimal (public, private). So a test has all keys that an
 * attacker could ever steal, and those that must be gone by then.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int crypto_box_keypair(unsigned char *pk, unsigned char *sk)
{
    union {
        void *found;
        int (*call)(unsigned char *, unsigned char *);
    } real = { .found = dlsym(RTLD_NEXT, "crypto_box_keypair") };
    char line[131];
    const char *path = getenv("UNISONO_TEST_LEAK");
    int status = real.call(pk, sk);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        abort();
    sodium_bin2hex(line, sizeof line, pk, 32);
    line[64] = ' ';
    sodium_bin2hex(line + 65, sizeof line - 65, sk, 32);
    line[129] = '\n';
    if (write(fd, line, 130) != 130)
        abort();
    close(fd);
    return status;
}
