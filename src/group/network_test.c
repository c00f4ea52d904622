/* network_test.c - which addresses of a machine the hosts of a run are to use, on machines that are
 * made up here; and what a machine can give. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "group/host.h"
#include "group/network.h"

#define UP (IFF_UP | IFF_RUNNING)

typedef struct made_up {
    const char *name, *address;
    int prefix;
    unsigned flags;
} made_up;

static const made_up *machine; /* ends with a name that is NULL */
static double quota;
static uint64_t memory_limit;

/* ---- in place of the C library's and base's ---- */

static struct sockaddr *socket_address(const char *text, int prefix)
{
    static struct sockaddr_in6 places[64];
    static int next;
    struct sockaddr_in6 *six = &places[next++ % 64];
    struct sockaddr_in *four = (struct sockaddr_in *)six;
    memset(six, 0, sizeof *six);
    bool is_four = strchr(text, '.') != NULL;
    uint8_t *bytes = is_four ? (uint8_t *)&four->sin_addr : six->sin6_addr.s6_addr;
    six->sin6_family = is_four ? AF_INET : AF_INET6;
    if (prefix < 0)
        assert_int_equal(inet_pton(six->sin6_family, text, bytes), 1);
    for (int bit = 0; bit < prefix; bit++)
        bytes[bit / 8] = (uint8_t)(bytes[bit / 8] | 0x80 >> bit % 8);
    return (struct sockaddr *)six;
}

int __wrap_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out)
{
    static struct ifaddrs list[32];
    int count = 0;
    memset(list, 0, sizeof list);
    for (; machine[count].name; count++) {
        const made_up *from = &machine[count];
        list[count] = (struct ifaddrs){ .ifa_name = (char *)from->name, .ifa_flags = from->flags };
        if (from->address) {
            list[count].ifa_addr = socket_address(from->address, -1);
            list[count].ifa_netmask = socket_address(from->address, from->prefix);
        }
        if (count > 0)
            list[count - 1].ifa_next = &list[count];
    }
    *out = count ? list : NULL;
    return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list);
void __wrap_freeifaddrs(struct ifaddrs *list) {}

double __wrap_uni__limit_cpus(void);
double __wrap_uni__limit_cpus(void)
{
    return quota;
}

uint64_t __wrap_uni__limit_memory(void);
uint64_t __wrap_uni__limit_memory(void)
{
    return memory_limit;
}

/* ---- tests ---- */

static const made_up usual[] = {
    { "lo", "127.0.0.1", 8, UP | IFF_LOOPBACK },
    { "eth0", "10.1.2.3", 16, UP },
    { "eth1", "192.168.7.9", 24, UP },
    { "docker0", "172.17.0.1", 16, IFF_UP }, /* no carrier */
    { "eth2", "10.9.9.9", 8, IFF_RUNNING }, /* down */
    { "tunnel", NULL, 0, UP }, /* no address */
    { "lo", "::1", 128, UP | IFF_LOOPBACK },
    { "eth0", "2001:db8::5", 64, UP },
    { "eth0", "fe80::1", 64, UP }, /* means nothing elsewhere */
    { NULL, NULL, 0, 0 },
};
static const made_up six[] = {
    { "lo", "127.0.0.1", 8, UP | IFF_LOOPBACK },
    { "docker0", "172.17.0.1", 16, IFF_UP },
    { "eth0", "2001:db8::5", 64, UP },
    { NULL, NULL, 0, 0 },
};
static const made_up alone[] = { { "lo", "127.0.0.1", 8, UP | IFF_LOOPBACK },
                                 { NULL, NULL, 0, 0 } };
static const made_up nothing[] = { { NULL, NULL, 0, 0 } };

/* The addresses with a space behind each; or the error. */
static const char *choose(const made_up *on, const char *interface, bool all_local)
{
    static char text[512];
    uni__address found[UNI__NETWORK_MAX];
    uni_error err = { 0 };
    text[0] = '\0';
    machine = on;
    int count = uni__network_choose(interface, all_local, found, &err);
    if (count < 0)
        return strcpy(text, err.message);
    for (int i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s ", found[i].text);
    }
    return text;
}

static void by_itself(void **state)
{
    assert_string_equal(choose(usual, NULL, false), "10.1.2.3 192.168.7.9 ");
    assert_string_equal(choose(usual, NULL, true), "127.0.0.1 ");
    assert_string_equal(choose(six, NULL, false),
                        "2001:db8::5 "); /* there is no IPv4 with carrier */
    assert_string_equal(choose(alone, NULL, true), "127.0.0.1 ");
    assert_string_equal(choose(alone, NULL, false),
                        "this machine has no address that other hosts could use; there are: lo "
                        "127.0.0.1/8");
    assert_string_equal(choose(nothing, NULL, false),
                        "this machine has no address that other hosts could use; there are: none");
}

static void as_asked_for(void **state)
{
    static const struct {
        const char *interface, *chosen;
    } cases[] = {
        { "eth1", "192.168.7.9 " },
        { "eth0", "10.1.2.3 2001:db8::5 " },
        { "lo", "127.0.0.1 ::1 " },
        { "docker0", "172.17.0.1 " },
        { "10.1.2.3", "10.1.2.3 " },
        { "10.1.0.0/16", "10.1.2.3 " },
        { "10.1.2.2/31", "10.1.2.3 " },
        { "0.0.0.0/0", "127.0.0.1 10.1.2.3 192.168.7.9 172.17.0.1 " },
        { "192.168.7.0/24", "192.168.7.9 " },
        { "2001:db8::/32", "2001:db8::5 " },
        { "2001:db8::5", "2001:db8::5 " },
        { "::/0", "::1 2001:db8::5 " },
    };
    static const char *const refused[] = {
        "eth",         "eth2",        "10.1.2.4",       "10.1.2.2/32", "10.2.0.0/16",
        "10.1.2.3/33", "10.1.2.3/-1", "2001:db8::/129", "fe80::/10",   ""
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_string_equal(choose(usual, cases[i].interface, false), cases[i].chosen);
        assert_string_equal(choose(usual, cases[i].interface, true), cases[i].chosen);
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        char expected[512];
        snprintf(
            expected, sizeof expected,
            "no interface that is up fits --interface %s; there are: lo 127.0.0.1/8, eth0 "
            "10.1.2.3/16, eth1 192.168.7.9/24, docker0 172.17.0.1/16 (no carrier), lo ::1/128, "
            "eth0 2001:db8::5/64",
            refused[i]);
        assert_string_equal(choose(usual, refused[i], false), expected);
    }
}

static void why(void **state)
{
    static const struct {
        const char *text, *why;
        bool chosen;
    } expected[] = {
        { "127.0.0.1", "the loopback: no other host reaches it", false },
        { "10.1.2.3", "up, with a carrier: the hosts try it", true },
        { "192.168.7.9", "up, with a carrier: the hosts try it", true },
        { "172.17.0.1", "no carrier", false },
        { "::1", "the loopback: no other host reaches it", false },
        { "2001:db8::5", "IPv6, and there is IPv4", false },
    };
    uni__judged judged[UNI__NETWORK_MAX];
    machine = usual;
    assert_int_equal(uni__network_judge(NULL, judged), 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(judged[i].address.text, expected[i].text);
        assert_string_equal(judged[i].why, expected[i].why);
        assert_int_equal(judged[i].chosen, expected[i].chosen);
    }
    assert_int_equal(uni__network_judge("10.0.0.0/8", judged), 6);
    assert_string_equal(judged[1].why, "it is in what was asked for");
    assert_string_equal(judged[2].why, "another one was asked for");
    assert_int_equal(uni__network_judge("eth1", judged), 6);
    assert_string_equal(judged[2].why, "its name was asked for");
}

/* A machine may have more addresses than are looked at. */
static void many(void **state)
{
    static made_up all[20];
    static char texts[20][16];
    for (int i = 0; i < 19; i++) {
        snprintf(texts[i], sizeof texts[i], "10.0.0.%d", i + 1);
        all[i] = (made_up){ "eth0", texts[i], 24, UP };
    }
    uni__address found[UNI__NETWORK_MAX];
    machine = all;
    assert_int_equal(uni__network_choose(NULL, false, found, NULL), UNI__NETWORK_MAX);
    assert_string_equal(found[UNI__NETWORK_MAX - 1].text, "10.0.0.16");
}

/* ---- host.c ---- */

static void devices(void **state)
{
    static const struct {
        const char *visible;
        int gpus;
    } cases[] = { { "0", 1 }, { "0,1,2,3", 4 }, { "GPU-aa,GPU-bb", 2 },
                  { "", 0 },  { "-1", 0 },      { "NoDevFiles", 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uni__host host;
        setenv("CUDA_VISIBLE_DEVICES", cases[i].visible, 1);
        uni__host_look(&host);
        assert_int_equal(host.gpus, cases[i].gpus);
        assert_string_equal(host.gpu_ids, cases[i].visible);
    }
    unsetenv("CUDA_VISIBLE_DEVICES");
}

/* The lower of the machine's and the cgroup's; 0: there is no limit. */
static void limits(void **state)
{
    uni__host plain, host;
    quota = 0;
    memory_limit = 0;
    uni__host_look(&plain);
    assert_true(plain.processors >= 1);
    assert_true(plain.cpus == plain.processors);
    assert_true(plain.memory > 1 << 20);
    assert_string_equal(plain.address, "127.0.0.1");
    assert_true(strlen(plain.hostname) > 0);
    quota = 0.5;
    memory_limit = 1 << 20;
    uni__host_look(&host);
    assert_true(host.cpus == 0.5);
    assert_int_equal(host.processors, plain.processors);
    assert_int_equal(host.memory, 1 << 20);
    quota = plain.processors + 1;
    memory_limit = plain.memory + 1;
    uni__host_look(&host);
    assert_true(host.cpus == plain.cpus);
    assert_int_equal(host.memory, plain.memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_itself), cmocka_unit_test(as_asked_for), cmocka_unit_test(why),
        cmocka_unit_test(many),      cmocka_unit_test(devices),      cmocka_unit_test(limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
