/* The driver against registers in memory: what it does where no accelerator does it wrong for it. Says which check fails. */
#include <stdio.h>
#include <string.h>

#include "dovetail.h"

#define CHECK(condition) \
    if (!(condition))    \
    return printf("line %d: %s\n", __LINE__, #condition), 1

struct mock {
    uint32_t registers[64];
    unsigned polls_to_done; /* reads of STATUS until a run has ended */
    unsigned waits;
    int woken; /* what wait() answers */
    uint64_t time, step;
};

static uint32_t *at(void *context, uint32_t offset)
{
    return &((struct mock *)context)->registers[offset / 4];
}

static uint32_t read_register(void *context, uint32_t offset)
{
    struct mock *mock = context;
    if (offset == DOVETAIL_HOST_STATUS && mock->polls_to_done && !--mock->polls_to_done)
        *at(mock, offset) = DOVETAIL_HOST_STATUS_DONE_MASK;
    return *at(mock, offset);
}

static void write_register(void *context, uint32_t offset, uint32_t value)
{
    if (offset == DOVETAIL_HOST_STATUS)
        *at(context, offset) &= ~value;
    else
        *at(context, offset) = value;
}

static int wait_for_interrupt(void *context, uint64_t timeout)
{
    struct mock *mock = context;
    (void)timeout;
    ++mock->waits;
    return mock->woken;
}

static uint64_t now(void *context)
{
    struct mock *mock = context;
    return mock->time += mock->step;
}

static void relax(void *context)
{
    ++((struct mock *)context)->waits;
}

static struct mock fresh(void)
{
    struct mock mock;
    memset(&mock, 0, sizeof mock);
    *at(&mock, DOVETAIL_HOST_ID) = DOVETAIL_HOST_ID_VALUE;
    *at(&mock, DOVETAIL_HOST_VERSION) = DOVETAIL_HOST_VERSION_VALUE;
    *at(&mock, DOVETAIL_HOST_CONFIG_HASH_LO) = 0x89abcdefu;
    *at(&mock, DOVETAIL_HOST_CONFIG_HASH_HI) = 0x01234567u;
    return mock;
}

static const uint64_t HASH = 0x0123456789abcdefull;

static int check_open(void)
{
    struct mock mock = fresh();
    struct dovetail_platform platform = {&mock, read_register, write_register, NULL, NULL, NULL, NULL, NULL};
    struct dovetail device;
    *at(&mock, DOVETAIL_HOST_STATUS) = DOVETAIL_HOST_STATUS_DONE_MASK;
    *at(&mock, DOVETAIL_HOST_CONTROL) = DOVETAIL_HOST_CONTROL_IRQ_ENABLE_MASK;
    CHECK(dovetail_open(&device, &platform, HASH) == DOVETAIL_OK);
    CHECK(*at(&mock, DOVETAIL_HOST_STATUS) == 0 && *at(&mock, DOVETAIL_HOST_CONTROL) == 0);
    CHECK(dovetail_open(&device, &platform, HASH + 1) == DOVETAIL_ERROR_CONFIG);
    CHECK(dovetail_config_hash(&device) == HASH);
    *at(&mock, DOVETAIL_HOST_STATUS) = DOVETAIL_HOST_STATUS_BUSY_MASK;
    CHECK(dovetail_open(&device, &platform, HASH) == DOVETAIL_ERROR_BUSY);
    *at(&mock, DOVETAIL_HOST_VERSION) += 1;
    CHECK(dovetail_open(&device, &platform, HASH) == DOVETAIL_ERROR_VERSION);
    *at(&mock, DOVETAIL_HOST_ID) = 0xffffffffu;
    CHECK(dovetail_open(&device, &platform, HASH) == DOVETAIL_ERROR_ID);
    return 0;
}

static int check_start(void)
{
    struct mock mock = fresh();
    struct dovetail_platform platform = {&mock, read_register, write_register, NULL, NULL, NULL, NULL, NULL};
    const struct dovetail_memory memory = {NULL, 0xfffff000u, 4096};
    struct dovetail device;
    CHECK(!dovetail_open(&device, &platform, HASH));
    CHECK(!dovetail_start(&device, &memory, 3072, 1));
    CHECK(*at(&mock, DOVETAIL_HOST_BASE) == 0xfffff000u && *at(&mock, DOVETAIL_HOST_PROGRAM) == 0xfffffc00u);
    CHECK(*at(&mock, DOVETAIL_HOST_PAGES) == 1);
    CHECK(*at(&mock, DOVETAIL_HOST_CONTROL) == DOVETAIL_HOST_CONTROL_START_MASK);
    CHECK(dovetail_start(&device, &memory, 3072, 2) == DOVETAIL_ERROR_MEMORY);
    CHECK(dovetail_start(&device, &memory, 1024, 0x00400001u) == DOVETAIL_ERROR_MEMORY);
    platform.wait = wait_for_interrupt;
    CHECK(!dovetail_open(&device, &platform, HASH));
    CHECK(!dovetail_start(&device, &memory, 0, 4));
    CHECK(*at(&mock, DOVETAIL_HOST_CONTROL)
          == (DOVETAIL_HOST_CONTROL_START_MASK | DOVETAIL_HOST_CONTROL_IRQ_ENABLE_MASK));
    return 0;
}

static int check_polling(void)
{
    struct mock mock = fresh();
    struct dovetail_platform platform = {&mock, read_register, write_register, NULL, NULL, relax, NULL, NULL};
    struct dovetail device;
    CHECK(!dovetail_open(&device, &platform, HASH));
    mock.polls_to_done = 10; /* without a clock every poll is a microsecond */
    CHECK(dovetail_wait(&device, 8, NULL) == DOVETAIL_ERROR_TIMEOUT && mock.waits == 8);
    CHECK(dovetail_wait(&device, 8, NULL) == DOVETAIL_OK && mock.waits == 8);
    CHECK(!dovetail_poll(&device));
    mock.polls_to_done = 1000;
    CHECK(dovetail_wait(&device, DOVETAIL_FOREVER, NULL) == DOVETAIL_OK);
    mock.polls_to_done = 1;
    CHECK(dovetail_wait(&device, 0, NULL) == DOVETAIL_OK);
    CHECK(dovetail_wait(&device, 0, NULL) == DOVETAIL_ERROR_TIMEOUT);
    platform.now = now;
    mock.step = 100;
    mock.waits = 0;
    CHECK(!dovetail_open(&device, &platform, HASH));
    CHECK(dovetail_wait(&device, 1000, NULL) == DOVETAIL_ERROR_TIMEOUT && mock.waits == 10);
    return 0;
}

static int check_interrupt(void)
{
    struct mock mock = fresh();
    struct dovetail_platform platform = {&mock, read_register, write_register, wait_for_interrupt, NULL, NULL, NULL, NULL};
    struct dovetail device;
    CHECK(!dovetail_open(&device, &platform, HASH));
    mock.polls_to_done = 5; /* interrupts that were not ours */
    mock.woken = 1;
    CHECK(dovetail_wait(&device, 1000, NULL) == DOVETAIL_OK && mock.waits == 4);
    mock.woken = 0; /* the time is over, unless it never is */
    CHECK(dovetail_wait(&device, 1000, NULL) == DOVETAIL_ERROR_TIMEOUT && mock.waits == 5);
    mock.polls_to_done = 5;
    CHECK(dovetail_wait(&device, DOVETAIL_FOREVER, NULL) == DOVETAIL_OK);
    mock.woken = -1;
    CHECK(dovetail_wait(&device, 1000, NULL) == DOVETAIL_ERROR_INTERRUPT);
    return 0;
}

static int check_result(void)
{
    struct mock mock = fresh();
    struct dovetail_platform platform = {&mock, read_register, write_register, NULL, NULL, NULL, NULL, NULL};
    struct dovetail device;
    struct dovetail_result result;
    CHECK(!dovetail_open(&device, &platform, HASH));
    mock.polls_to_done = 1;
    *at(&mock, DOVETAIL_HOST_CAUSE) = DOVETAIL_CAUSE_RACE;
    *at(&mock, DOVETAIL_HOST_FAULT_PC) = 77;
    *at(&mock, DOVETAIL_HOST_CYCLES_LO) = 5;
    *at(&mock, DOVETAIL_HOST_CYCLES_HI) = 6;
    *at(&mock, DOVETAIL_HOST_VECTOR_TOKEN) = 9;
    CHECK(dovetail_wait(&device, 1, &result) == DOVETAIL_ERROR_FAULT);
    CHECK(result.cause == DOVETAIL_CAUSE_RACE && result.fault_pc == 77 && result.cycles == 0x600000005ull);
    CHECK(result.stalls[DOVETAIL_UNIT_VECTOR].token == 9 && result.stalls[DOVETAIL_UNIT_ARRAY].token == 0);
    return 0;
}

static int check_parameters(void)
{
    struct mock mock = fresh();
    struct dovetail_platform platform = {&mock, read_register, write_register, NULL, NULL, NULL, NULL, NULL};
    struct dovetail device;
    CHECK(!dovetail_open(&device, &platform, HASH));
    CHECK(dovetail_set_parameter(&device, 0, 1) == DOVETAIL_ERROR_INDEX);
    CHECK(dovetail_set_parameter(&device, DOVETAIL_PARAMETERS + 1, 1) == DOVETAIL_ERROR_INDEX);
    CHECK(!dovetail_set_parameter(&device, 1, 7) && !dovetail_set_parameter(&device, DOVETAIL_PARAMETERS, 8));
    CHECK(*at(&mock, DOVETAIL_HOST_PARAM1) == 7 && *at(&mock, DOVETAIL_HOST_PARAM15) == 8);
    *at(&mock, DOVETAIL_HOST_STATUS) = DOVETAIL_HOST_STATUS_BUSY_MASK;
    CHECK(dovetail_set_parameter(&device, 1, 9) == DOVETAIL_ERROR_BUSY && *at(&mock, DOVETAIL_HOST_PARAM1) == 7);
    return 0;
}

static int check_words(void)
{
    int status;
    CHECK(dovetail_microseconds(0, 100) == 0 && dovetail_microseconds(1, 100000000u) == 1);
    CHECK(dovetail_microseconds(100000001u, 100000000u) == 1000001u);
    CHECK(dovetail_microseconds(UINT64_MAX, 1) == DOVETAIL_FOREVER && dovetail_microseconds(7, 0) == DOVETAIL_FOREVER);
    CHECK(dovetail_microseconds(UINT64_MAX, 0xffffffffu) == 4294967297000000ull);
    for (status = DOVETAIL_OK; status >= DOVETAIL_ERROR_PARAMETERS; --status)
        CHECK(strcmp(dovetail_status_text(status), "unknown status"));
    CHECK(!strcmp(dovetail_status_text(DOVETAIL_ERROR_PARAMETERS - 1), "unknown status"));
    CHECK(!strcmp(dovetail_cause_text(DOVETAIL_CAUSE_OPCODE), "unknown opcode"));
    CHECK(!strcmp(dovetail_cause_text(99), "unknown cause"));
    return 0;
}

int main(void)
{
    return check_open() || check_start() || check_polling() || check_interrupt() || check_result() || check_parameters()
        || check_words();
}
