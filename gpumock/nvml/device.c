/* MOCK: what the system is and what its GPUs are. */
#include "node.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MIB (1024ull * 1024ull)

const char superinfer_gpumock[] = "MOCK libnvidia-ml of SuperInfer, no hardware behind it";

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    struct node node;
    nvmlReturn_t result = node_now(&node);
    return result ? result : copy_text(node.driver, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) {
    struct node node;
    char text[TEXT + 4];
    nvmlReturn_t result = node_now(&node);
    if (result)
        return result;
    snprintf(text, sizeof text, "13.%s", node.driver);
    return copy_text(text, version, length);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    struct node node;
    nvmlReturn_t result = node_now(&node);
    if (!result)
        *version = (int)node.cuda;
    return result;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    struct node node;
    nvmlReturn_t result = node_now(&node);
    if (!result)
        *count = node.gpu_count;
    return result;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    struct node node;
    nvmlReturn_t result = node_now(&node);
    if (result)
        return result;
    if (index >= node.gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = handle_of(index, NO_INSTANCE);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    struct node node;
    nvmlReturn_t result = node_now(&node);
    if (result)
        return result;
    for (unsigned int at = 0; at < node.gpu_count; at++) {
        const struct gpu *gpu = &node.gpus[at];
        if (!strcmp(gpu->uuid, uuid)) {
            *device = handle_of(at, NO_INSTANCE);
            return NVML_SUCCESS;
        }
        for (unsigned int made = 0; made < gpu->instance_count; made++)
            if (!strcmp(gpu->instances[made].uuid, uuid)) {
                *device = handle_of(at, gpu->instances[made].gi);
                return NVML_SUCCESS;
            }
    }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    struct node node;
    nvmlReturn_t result = node_now(&node);
    if (result)
        return result;
    for (unsigned int at = 0; at < node.gpu_count; at++)
        if (!strcasecmp(node.gpus[at].pci, bus_id)) {
            *device = handle_of(at, NO_INSTANCE);
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    struct node node;
    struct gpu *gpu;
    char text[2 * TEXT + 8];
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    const struct instance *instance = instance_of(device, gpu);
    const struct profile *profile = instance ? profile_by_id(&node, instance->profile_id) : NULL;
    if (profile)
        snprintf(text, sizeof text, "%s MIG %s", node.product, profile->name);
    else
        snprintf(text, sizeof text, "%s", node.product);
    return copy_text(text, name, length);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    if (device->gi == NO_INSTANCE)
        return copy_text(gpu->uuid, uuid, length);
    const struct instance *instance = instance_of(device, gpu);
    return instance ? copy_text(instance->uuid, uuid, length) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result)
        *index = device->gpu;
    return result;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    return nvmlDeviceGetIndex(device, minor);
}

static nvmlReturn_t memory_of(nvmlDevice_t device, unsigned long long *bytes) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    const struct instance *instance = instance_of(device, gpu);
    if (device->gi != NO_INSTANCE && !instance)
        return NVML_ERROR_NOT_FOUND;
    const struct profile *profile = instance ? profile_by_id(&node, instance->profile_id) : NULL;
    *bytes = (profile ? profile->memory_mib : node.memory_mib) * MIB;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    unsigned long long bytes = 0;
    nvmlReturn_t result = memory_of(device, &bytes);
    if (!result)
        *memory = (nvmlMemory_t){bytes, bytes, 0};
    return result;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    unsigned long long bytes = 0;
    nvmlReturn_t result = memory_of(device, &bytes);
    if (!result)
        *memory = (nvmlMemory_v2_t){memory->version, bytes, 0, bytes, 0};
    return result;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *info) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    memset(info, 0, sizeof *info);
    sscanf(gpu->pci, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->busId, sizeof info->busId, "%.31s", gpu->pci);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%.15s", gpu->pci + 4);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *numa) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result)
        *numa = gpu->numa;
    return result;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result)
        *architecture = node.architecture;
    return result;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result) {
        *major = (int)node.cc_major;
        *minor = (int)node.cc_minor;
    }
    return result;
}

const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "The operation was successful (MOCK)";
    case NVML_ERROR_UNINITIALIZED: return "NVML was not initialized (MOCK)";
    case NVML_ERROR_INVALID_ARGUMENT: return "An argument is invalid (MOCK)";
    case NVML_ERROR_NOT_SUPPORTED: return "Not supported by this device (MOCK)";
    case NVML_ERROR_NOT_FOUND: return "Not found (MOCK)";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "A buffer is too small (MOCK)";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "No node description, so no driver (MOCK)";
    case NVML_ERROR_TIMEOUT: return "Timeout (MOCK)";
    case NVML_ERROR_GPU_IS_LOST: return "The GPU has fallen off the bus (MOCK)";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "A structure has another version (MOCK)";
    default: return "Unknown error (MOCK)";
    }
}
