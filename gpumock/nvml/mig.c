/* MOCK: MIG mode, instances, profiles and where they may lie. Nothing here changes a layout. */
#include "node.h"

#include <stdio.h>
#include <string.h>

#define COMPUTE_SLICES 7

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *now, unsigned int *pending) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    if (!node.profile_count)
        return NVML_ERROR_NOT_SUPPORTED;
    *now = *pending = gpu->mig;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result)
        *count = node.profile_count ? COMPUTE_SLICES : 0;
    return result;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    if (!gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    if (index >= gpu->instance_count)
        return NVML_ERROR_NOT_FOUND;
    *mig = handle_of(device->gpu, gpu->instances[index].gi);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (!result)
        *is_mig = device->gi != NO_INSTANCE;
    return result;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(mig, &node, &gpu);
    if (result)
        return result;
    if (mig->gi == NO_INSTANCE)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = handle_of(mig->gpu, NO_INSTANCE);
    return NVML_SUCCESS;
}

/* The instance behind a MIG handle, with its profile. */
static nvmlReturn_t find(nvmlDevice_t mig, struct node *node, const struct instance **instance,
                         const struct profile **profile) {
    struct gpu *gpu;
    nvmlReturn_t result = node_of(mig, node, &gpu);
    if (result)
        return result;
    if (mig->gi == NO_INSTANCE)
        return NVML_ERROR_INVALID_ARGUMENT;
    *instance = instance_of(mig, gpu);
    *profile = *instance ? profile_by_id(node, (*instance)->profile_id) : NULL;
    return *profile ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t mig, unsigned int *id) {
    struct node node;
    const struct instance *instance;
    const struct profile *profile;
    nvmlReturn_t result = find(mig, &node, &instance, &profile);
    if (!result)
        *id = instance->gi;
    return result;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t mig, unsigned int *id) {
    struct node node;
    const struct instance *instance;
    const struct profile *profile;
    nvmlReturn_t result = find(mig, &node, &instance, &profile);
    if (!result)
        *id = 0;
    return result;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t mig, nvmlDeviceAttributes_t *attributes) {
    struct node node;
    const struct instance *instance;
    const struct profile *profile;
    nvmlReturn_t result = find(mig, &node, &instance, &profile);
    if (result)
        return result;
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = profile->sms,
        .sharedCopyEngineCount = profile->copy_engines,
        .gpuInstanceSliceCount = profile->compute_slices,
        .computeInstanceSliceCount = profile->compute_slices,
        .memorySizeMB = profile->memory_mib,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *found) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    if (id >= MAX_GI_ID || !instance_of(handle_of(device->gpu, id), gpu))
        return NVML_ERROR_NOT_FOUND;
    *found = handle_of(device->gpu, id);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t of, nvmlGpuInstanceInfo_t *info) {
    struct node node;
    const struct instance *instance;
    const struct profile *profile;
    nvmlReturn_t result = find(of, &node, &instance, &profile);
    if (result)
        return result;
    info->device = handle_of(of->gpu, NO_INSTANCE);
    info->id = instance->gi;
    info->profileId = profile->id;
    info->placement = (nvmlGpuInstancePlacement_t){instance->start, profile->memory_slices};
    return NVML_SUCCESS;
}

static nvmlReturn_t profile_by_index(nvmlDevice_t device, unsigned int index, struct node *node,
                                     const struct profile **profile) {
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, node, &gpu);
    if (result)
        return result;
    for (unsigned int at = 0; at < node->profile_count; at++)
        if (node->profiles[at].index == index) {
            *profile = &node->profiles[at];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int index,
                                                 nvmlGpuInstanceProfileInfo_t *info) {
    struct node node;
    const struct profile *profile;
    nvmlReturn_t result = profile_by_index(device, index, &node, &profile);
    if (result)
        return result;
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = profile->id,
        .sliceCount = profile->compute_slices,
        .instanceCount = profile->max,
        .multiprocessorCount = profile->sms,
        .copyEngineCount = profile->copy_engines,
        .memorySizeMB = profile->memory_mib,
    };
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int index,
                                                  nvmlGpuInstanceProfileInfo_v2_t *info) {
    struct node node;
    const struct profile *profile;
    if (info->version != VERSION_OF(nvmlGpuInstanceProfileInfo_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = profile_by_index(device, index, &node, &profile);
    if (result)
        return result;
    *info = (nvmlGpuInstanceProfileInfo_v2_t){
        .version = info->version,
        .id = profile->id,
        .sliceCount = profile->compute_slices,
        .instanceCount = profile->max,
        .multiprocessorCount = profile->sms,
        .copyEngineCount = profile->copy_engines,
        .memorySizeMB = profile->memory_mib,
    };
    snprintf(info->name, sizeof info->name, "MIG %.90s", profile->name);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id,
                                                           nvmlGpuInstancePlacement_t *placements,
                                                           unsigned int *count) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    const struct profile *profile = profile_by_id(&node, id);
    if (!profile)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (placements && *count < profile->start_count)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int at = 0; placements && at < profile->start_count; at++)
        placements[at] = (nvmlGpuInstancePlacement_t){profile->starts[at], profile->memory_slices};
    *count = profile->start_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned int id, unsigned int *count) {
    struct node node;
    struct gpu *gpu;
    nvmlReturn_t result = node_of(device, &node, &gpu);
    if (result)
        return result;
    const struct profile *wanted = profile_by_id(&node, id);
    if (!wanted)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!gpu->mig)
        return NVML_ERROR_NOT_SUPPORTED;
    unsigned int taken = 0, computing = 0, same = 0, more = 0;
    for (unsigned int at = 0; at < gpu->instance_count; at++) {
        const struct profile *profile = profile_by_id(&node, gpu->instances[at].profile_id);
        if (!profile)
            continue;
        taken |= ((1u << profile->memory_slices) - 1) << gpu->instances[at].start;
        computing += profile->compute_slices;
        same += profile->id == id;
    }
    for (unsigned int at = 0; at < wanted->start_count; at++) {
        unsigned int piece = ((1u << wanted->memory_slices) - 1) << wanted->starts[at];
        if (taken & piece || computing + wanted->compute_slices > COMPUTE_SLICES || same + more >= wanted->max)
            continue;
        taken |= piece;
        computing += wanted->compute_slices;
        more++;
    }
    *count = more;
    return NVML_SUCCESS;
}
