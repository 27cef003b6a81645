/* MOCK: error counts, recommended recovery, and events from the description while it changes. */
#include "node.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FIELD_LINK_COUNT = 91, FIELD_ROWS_CORRECTED = 142, FIELD_ROWS_UNCORRECTED = 143 };
enum { FIELD_ROWS_PENDING = 144, FIELD_ROWS_FAILED = 145, FIELD_RECOVERY_ACTION = 230 };
enum { VALUE_UNSIGNED = 1, ECC_CORRECTED = 0, LOOK_EVERY_MS = 50 };

#define EVENTS_REPORTED (0x1ull | 0x2ull | 0x8ull | 0x8000ull)

static nvmlReturn_t field(const struct node *node, const struct gpu *gpu, unsigned int id, unsigned int *value) {
    unsigned int links = node->switch_links;
    switch (id) {
    case FIELD_LINK_COUNT:
        for (unsigned int at = 0; at < node->gpu_count; at++)
            links += gpu->links[at];
        *value = links;
        return NVML_SUCCESS;
    case FIELD_ROWS_CORRECTED: *value = gpu->rows_corrected; return NVML_SUCCESS;
    case FIELD_ROWS_UNCORRECTED: *value = gpu->rows_uncorrected; return NVML_SUCCESS;
    case FIELD_ROWS_PENDING: *value = gpu->rows_pending; return NVML_SUCCESS;
    case FIELD_ROWS_FAILED: *value = gpu->rows_failed; return NVML_SUCCESS;
    case FIELD_RECOVERY_ACTION: *value = gpu->action; return NVML_SUCCESS;
    default: return NVML_ERROR_NOT_SUPPORTED;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    for (int at = 0; !result && at < count; at++) {
        values[at].value.ullVal = 0;
        values[at].valueType = VALUE_UNSIGNED;
        values[at].nvmlReturn = field(&node, gpu, values[at].fieldId, &values[at].value.uiVal);
    }
    return result;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int kind, unsigned int counter,
                                         unsigned long long *count) {
    struct node node;
    struct gpu *gpu;
    (void)counter;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result)
        *count = kind == ECC_CORRECTED ? gpu->ecc_corrected : gpu->ecc_uncorrected;
    return result;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result)
        *now = *pending = 1;
    return result;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                                       unsigned int *pending, unsigned int *failed) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result) {
        *corrected = gpu->rows_corrected;
        *uncorrected = gpu->rows_uncorrected;
        *pending = gpu->rows_pending;
        *failed = gpu->rows_failed;
    }
    return result;
}

/* What is wanted of each GPU; `after` is the last event seen. One thread waits on a set, as with NVML. */
struct event_set {
    unsigned long long wanted[MAX_GPUS];
    unsigned long long after[MAX_GPUS];
};

static unsigned long long last_sequence(const struct node *node) {
    return node->event_count ? node->events[node->event_count - 1].sequence : 0;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    *set = calloc(1, sizeof **set);
    return *set ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    free(set);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result)
        *types = EVENTS_REPORTED;
    return result;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    if (device->gi != NO_INSTANCE || types & ~EVENTS_REPORTED)
        return NVML_ERROR_NOT_SUPPORTED;
    set->wanted[device->gpu] |= types;
    set->after[device->gpu] = last_sequence(&node);
    return NVML_SUCCESS;
}

static int next_event(const struct node *node, nvmlEventSet_t set, nvmlEventData_t *data) {
    for (unsigned int gpu = 0; gpu < MAX_GPUS; gpu++)
        if (set->after[gpu] > last_sequence(node)) /* another description: its events count from one again */
            set->after[gpu] = 0;
    for (unsigned int at = 0; at < node->event_count; at++) {
        const struct event *event = &node->events[at];
        if (event->sequence <= set->after[event->gpu] || !(event->type & set->wanted[event->gpu]))
            continue;
        set->after[event->gpu] = event->sequence;
        *data = (nvmlEventData_t){
            .device = handle_of(event->gpu, NO_INSTANCE),
            .eventType = event->type,
            .eventData = event->data,
            .gpuInstanceId = event->gi,
            .computeInstanceId = event->gi == NO_INSTANCE ? NO_INSTANCE : 0,
        };
        return 1;
    }
    return 0;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    for (unsigned int waited_ms = 0;; waited_ms += LOOK_EVERY_MS) {
        struct node node;
        nvmlReturn_t result = node_now(&node);
        if (result)
            return result;
        if (next_event(&node, set, data))
            return NVML_SUCCESS;
        if (waited_ms >= timeout_ms)
            return NVML_ERROR_TIMEOUT;
        struct timespec pause = {0, LOOK_EVERY_MS * 1000000L};
        nanosleep(&pause, NULL);
    }
}

nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}
