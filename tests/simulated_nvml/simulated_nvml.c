/*
 * A simulated NVML: the part of libnvidia-ml.so.1 that monitoring and its competitors call, for GPUs that
 * a text file describes. For tests, benchmarks and labeled demonstrations only; no value is a measurement.
 *
 * SIMULATED_NVML names the file. It is read again when it has changed, so a test can change what happens
 * while another process samples. Lines (a # begins a comment):
 *
 *	gpus 4				how many there are (default 1)
 *	init driver_not_loaded		nvmlInit fails so, or hangs
 *	hang FUNCTION [GPU]		this function does not return, for one GPU or for all of them
 *	reload SERIAL			the driver was loaded again: what a process opened under a lower SERIAL
 *					is uninitialized to it until it ends
 *	all KEY VALUE			for every GPU
 *	gpu 2 KEY VALUE			for one
 *	gpu 2 process PID MIB [SM]	a process that computes on it; its name is that of /proc or "simulated"; a
 *					MIB below 0 is a memory that NVML does not tell; it keeps SM percent of
 *					the SMs busy, and without SM it is idle
 *	gpu 2 mig UUID TOTAL_MIB USED_MIB
 *	gpu 2 type FIELD TYPE		the nvmlValueType_t in which nvmlDeviceGetFieldValues gives the field
 *	xid 2 79 SERIAL			an Xid event, raised once when a SERIAL above all earlier ones is seen
 *
 * A VALUE is a number, LOW~HIGH/SECONDS for a triangle wave, or one of the words unsupported, denied, lost,
 * reset, unknown, hang and crash, which every call for that value then returns (or does: hang until the file
 * changes, crash by a write to nowhere, as a driver does).
 * `gpu 2 state lost` does it for every call on the GPU. Texts: uuid, name, pci. Keys and units: see `keys`.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* NVIDIA's own, so that no prototype here can differ from what a driver has; all versions of each function. */
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include "nvml.h"

#define MOST_GPUS 64
#define MOST_PROCESSES 64
#define MOST_MIGS 8
#define MOST_XIDS 64
#define MOST_HANGS 64
#define MOST_FIELDS 256
#define MIB (1024.0 * 1024.0)
#define REREAD_EVERY 0.005	/* seconds between looks at the file's time */

/* What a word of the file stands for besides the errors of nvml.h. */
enum { HANG = -1, CRASH = -2 };

/* The values of a GPU, with what they are if the file does not say. */
#define VALUES(X) \
	X(state, 0)		/* 0, or a word that every call returns */ \
	X(utilization, 0)	/* % */ \
	X(memory_utilization, 0) \
	X(memory_total, 81559)	/* MiB */ \
	X(memory_used, 500) \
	X(memory_reserved, 0) \
	X(temperature, 40)	/* degrees Celsius */ \
	X(memory_temperature, 45) \
	X(margin, 47) \
	X(power, 70)		/* W */ \
	X(power_average, 70) \
	X(power_usage, -1)	/* what nvmlDeviceGetPowerUsage tells; -1: power_average */ \
	X(power_limit, 700) \
	X(energy, -1)		/* J; -1: grows with power */ \
	X(fan, 0)		/* % */ \
	X(sm_clock, 1980)	/* MHz */ \
	X(memory_clock, 2619) \
	X(throttle, 1)		/* bits of nvmlClocksEventReason */ \
	X(pcie_tx, 1000000)	/* bytes */ \
	X(pcie_rx, 2000000) \
	X(pcie_replay, 0) \
	X(nvlink_tx, 1024)	/* KiB */ \
	X(nvlink_rx, 2048) \
	X(ecc_corrected, 0) \
	X(ecc_uncorrected, 0) \
	X(remapped_corrected, 0) \
	X(remapped_uncorrected, 0) \
	X(remap_failure, 0)	/* 0 or 1 */ \
	X(encoder, 0)		/* % */ \
	X(decoder, 0) \
	X(sm_activity, 0)	/* %, GPM */ \
	X(tensor_activity, 0) \
	X(dram_activity, 0) \
	X(architecture, 9)	/* NVML_DEVICE_ARCH: 7 Ampere, 9 Hopper */ \
	X(processes, 0)		/* only for words */ \
	X(process_utilization, 0)	/* only for words */ \
	X(events, 0)		/* only for words */ \
	X(newer, 0)		/* only for words: what the newer of two functions for a value answers */ \
	X(mig_instances, 0)	/* only for words: what every call on a MIG instance answers */ \
	X(delay, 0)		/* microseconds that each call on the GPU takes */

#define ENUMERATE(name, value) V_##name,
#define NAME(name, value) #name,
#define DEFAULT(name, value) value,
enum { VALUES(ENUMERATE) NUM_VALUES };
static const char *const keys[] = { VALUES(NAME) };
static const double defaults[] = { VALUES(DEFAULT) };

struct value { double low, high, period; int error; };
struct process { unsigned pid, sm; double mib; };
struct mig { char uuid[80]; double total, used; };
struct gpu {
	int index;
	char uuid[80], name[96], pci[32];
	struct value values[NUM_VALUES];
	int num_processes, num_migs;
	struct process processes[MOST_PROCESSES];
	struct mig migs[MOST_MIGS];
	signed char types[MOST_FIELDS];	/* nvmlValueType_t, -1: as usual */
};
struct xid { int gpu; unsigned code; long serial; };
struct hang { char function[64]; int gpu; };	/* gpu -1: all */
struct machine {
	int num_gpus, init_error, num_xids, num_hangs;
	long reload;
	struct gpu gpus[MOST_GPUS];
	struct xid xids[MOST_XIDS];
	struct hang hangs[MOST_HANGS];
};

/* A handle is a GPU, or one of its MIG instances; they stay where they are while the machine changes. */
struct nvmlDevice_st { int gpu, mig; };
static struct nvmlDevice_st handles[MOST_GPUS][MOST_MIGS + 1];

static struct machine machine, next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double looked, started;
static struct timespec read_version;
static off_t read_size = -1;
static int initialized;
static long opened;	/* the driver that this process has initialized */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

/* ---- the file ---- */

static int error_named(const char *word)
{
	static const struct { const char *word; int error; } words[] = {
		{ "unsupported", NVML_ERROR_NOT_SUPPORTED }, { "denied", NVML_ERROR_NO_PERMISSION }, { "lost", NVML_ERROR_GPU_IS_LOST },
		{ "unknown", NVML_ERROR_UNKNOWN }, { "hang", HANG }, { "crash", CRASH }, { "driver_not_loaded", NVML_ERROR_DRIVER_NOT_LOADED },
		{ "uninitialized", NVML_ERROR_UNINITIALIZED }, { "reset", NVML_ERROR_RESET_REQUIRED },
		{ "mismatch", NVML_ERROR_LIB_RM_VERSION_MISMATCH },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
		if (!strcmp(word, words[i].word))
			return words[i].error;
	return 0;
}

static struct value parse_value(const char *text)
{
	struct value value = { .error = error_named(text) };

	if (!value.error) {
		value.low = value.high = strtod(text, NULL);
		sscanf(text, "%lf~%lf/%lf", &value.low, &value.high, &value.period);
	}
	return value;
}

static void set(struct gpu *gpu, const char *key, const char *rest)
{
	if (!strcmp(key, "uuid")) {
		snprintf(gpu->uuid, sizeof(gpu->uuid), "%s", rest);
	} else if (!strcmp(key, "name")) {
		snprintf(gpu->name, sizeof(gpu->name), "%s", rest);
	} else if (!strcmp(key, "pci")) {
		snprintf(gpu->pci, sizeof(gpu->pci), "%s", rest);
	} else if (!strcmp(key, "process") && gpu->num_processes < MOST_PROCESSES) {
		struct process *process = &gpu->processes[gpu->num_processes++];

		sscanf(rest, "%u %lf %u", &process->pid, &process->mib, &process->sm);
	} else if (!strcmp(key, "mig") && gpu->num_migs < MOST_MIGS) {
		struct mig *mig = &gpu->migs[gpu->num_migs++];

		sscanf(rest, "%79s %lf %lf", mig->uuid, &mig->total, &mig->used);
	} else if (!strcmp(key, "type")) {
		unsigned id = 0;
		int type = -1;

		if (sscanf(rest, "%u %d", &id, &type) == 2 && id < MOST_FIELDS)
			gpu->types[id] = type;
	} else {
		for (int i = 0; i < NUM_VALUES; i++) {
			if (!strcmp(key, keys[i])) {
				gpu->values[i] = parse_value(rest);
				return;
			}
		}
		fprintf(stderr, "simulated NVML: unknown key %s\n", key);
	}
}

static void begin(struct machine *m)
{
	memset(m, 0, sizeof(*m));
	m->num_gpus = 1;
	for (int i = 0; i < MOST_GPUS; i++) {
		struct gpu *gpu = &m->gpus[i];

		gpu->index = i;
		snprintf(gpu->uuid, sizeof(gpu->uuid), "GPU-%08x-0000-4000-8000-%012x", 0x51a10000 + i, i);
		snprintf(gpu->name, sizeof(gpu->name), "Simulated H100 80GB");
		snprintf(gpu->pci, sizeof(gpu->pci), "00000000:%02X:00.0", 0x10 + i);
		memset(gpu->types, -1, sizeof(gpu->types));
		for (int v = 0; v < NUM_VALUES; v++)
			gpu->values[v] = (struct value){ .low = defaults[v], .high = defaults[v] };
	}
}

static void parse(FILE *file, struct machine *m)
{
	char line[512];

	begin(m);
	while (fgets(line, sizeof(line), file)) {
		char key[64] = "", rest[384] = "";
		int index;

		line[strcspn(line, "#\n")] = 0;
		if (sscanf(line, "gpus %d", &index) == 1) {
			m->num_gpus = index < MOST_GPUS ? index : MOST_GPUS;
		} else if (sscanf(line, "init %63s", key) == 1) {
			m->init_error = error_named(key);
		} else if (sscanf(line, "reload %ld", &m->reload) == 1) {
			continue;
		} else if (sscanf(line, "hang %63s", key) == 1 && m->num_hangs < MOST_HANGS) {
			struct hang *hang = &m->hangs[m->num_hangs++];

			hang->gpu = -1;
			sscanf(line, "hang %63s %d", hang->function, &hang->gpu);
		} else if (sscanf(line, "all %63s %383[^\n]", key, rest) == 2) {
			for (int i = 0; i < MOST_GPUS; i++)
				set(&m->gpus[i], key, rest);
		} else if (sscanf(line, "gpu %d %63s %383[^\n]", &index, key, rest) == 3) {
			if (index >= 0 && index < MOST_GPUS)
				set(&m->gpus[index], key, rest);
		} else if (!strncmp(line, "xid ", 4) && m->num_xids < MOST_XIDS) {
			struct xid *xid = &m->xids[m->num_xids++];

			sscanf(line, "xid %d %u %ld", &xid->gpu, &xid->code, &xid->serial);
		}
	}
}

/* Bring `machine` up to date; the caller holds the lock. */
static void look(void)
{
	double t = now();
	const char *path = getenv("SIMULATED_NVML");
	struct stat stat_now;
	FILE *file;

	if (!started) {
		started = t;
		begin(&machine);
		for (int gpu = 0; gpu < MOST_GPUS; gpu++)
			for (int mig = 0; mig <= MOST_MIGS; mig++)
				handles[gpu][mig] = (struct nvmlDevice_st){ gpu, mig - 1 };
	} else if (t - looked < REREAD_EVERY) {
		return;
	}
	looked = t;
	if (!path || stat(path, &stat_now) ||
	    (stat_now.st_mtim.tv_sec == read_version.tv_sec && stat_now.st_mtim.tv_nsec == read_version.tv_nsec &&
	     stat_now.st_size == read_size))
		return;
	file = fopen(path, "r");
	if (!file)
		return;
	parse(file, &next);
	fclose(file);
	machine = next;
	read_version = stat_now.st_mtim;
	read_size = stat_now.st_size;
}

/* ---- asking a GPU ---- */

static double at(const struct value *value)
{
	double phase;

	if (value->period <= 0)
		return value->low;
	phase = fmod(now() - started, value->period) / value->period;
	return value->low + (value->high - value->low) * (phase < 0.5 ? 2 * phase : 2 - 2 * phase);
}

/* The function of NVML that a thread is in, as the macros below note it. */
static __thread const char *calling = "";

/* Whether it does not return for a GPU; the caller holds the lock. */
static int hangs(int index)
{
	for (int i = 0; i < machine.num_hangs; i++) {
		const struct hang *hang = &machine.hangs[i];

		if ((hang->gpu < 0 || hang->gpu == index) && !strcmp(hang->function, calling))
			return 1;
	}
	return 0;
}

/*
 * The error of a call on a GPU, and with a key the value; waits while the file says that it hangs, or how
 * long a call takes.
 */
static int ask_index(int index, int key, double *value)
{
	for (;;) {
		int error = NVML_SUCCESS, delay = 0;

		pthread_mutex_lock(&lock);
		look();
		if (!initialized || machine.reload != opened) {
			error = NVML_ERROR_UNINITIALIZED;
		} else if (index < 0 || index >= machine.num_gpus) {
			error = NVML_ERROR_INVALID_ARGUMENT;
		} else {
			const struct value *values = machine.gpus[index].values;

			delay = (int)values[V_delay].low;
			error = values[V_state].error;
			if (!error && key >= 0) {
				error = values[key].error;
				if (value)
					*value = at(&values[key]);
			}
		}
		if (hangs(index))
			error = HANG;
		pthread_mutex_unlock(&lock);
		if (error == CRASH)
			*(volatile int *)NULL = 0;
		if (error == HANG) {
			usleep(20000);
			continue;
		}
		if (delay)
			usleep(delay);
		return error;
	}
}

static int error_of(int index, int key) { return ask_index(index, key, NULL); }

static int ask(nvmlDevice_t handle, int key, double *value)
{
	return handle ? ask_index(handle->gpu, key, value) : NVML_ERROR_INVALID_ARGUMENT;
}

static int ask_unsigned(nvmlDevice_t handle, int key, double scale, unsigned *value)
{
	double number = 0;
	int error = ask(handle, key, &number);

	if (!error)
		*value = (unsigned)llround(number * scale);
	return error;
}

/* Joules: what the file says, else the mean power since the library was loaded, beginning at 1000. */
static int ask_energy(nvmlDevice_t handle, double *joules)
{
	int error = ask(handle, V_energy, joules);

	if (!error && *joules < 0) {
		struct value *power;

		pthread_mutex_lock(&lock);
		power = &machine.gpus[handle->gpu].values[V_power];
		*joules = 1000 + (power->low + power->high) / 2 * (now() - started);
		pthread_mutex_unlock(&lock);
	}
	return error;
}

#define error_of(index, key) (calling = __func__, error_of(index, key))
#define ask(handle, key, value) (calling = __func__, ask(handle, key, value))
#define ask_unsigned(handle, key, scale, value) (calling = __func__, ask_unsigned(handle, key, scale, value))

static int copy(char *to, unsigned size, const char *from)
{
	if (strlen(from) + 1 > size)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, from);
	return NVML_SUCCESS;
}

/* ---- the library and the machine ---- */

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
	int error;

	(void)flags;
	pthread_mutex_lock(&lock);
	looked = 0;
	look();
	while (machine.init_error == HANG) {
		pthread_mutex_unlock(&lock);
		usleep(20000);
		pthread_mutex_lock(&lock);
		look();
	}
	error = machine.init_error;
	if (!initialized && !error)
		opened = machine.reload;
	initialized = !error;
	pthread_mutex_unlock(&lock);
	return error;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
	initialized = 0;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t error)
{
	switch (error) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "RM has detected an NVML/RM version mismatch.";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case NVML_ERROR_TIMEOUT: return "Timeout";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	case NVML_ERROR_RESET_REQUIRED: return "GPU requires restart";
	default: return "Unknown Error";
	}
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *text, unsigned size) { return copy(text, size, "580.00.00"); }
nvmlReturn_t nvmlSystemGetNVMLVersion(char *text, unsigned size) { return copy(text, size, "13.580.00.00"); }

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = 13000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
{
	char path[64], found[1024];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%u/exe", pid);
	length = readlink(path, found, sizeof(found) - 1);
	if (length < 0)
		return copy(name, size, "simulated");
	found[length] = 0;
	return copy(name, size, found);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
	pthread_mutex_lock(&lock);
	look();
	*count = machine.num_gpus;
	pthread_mutex_unlock(&lock);
	return initialized ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *handle)
{
	int error = error_of(index, -1);

	if (!error)
		*handle = &handles[index][0];
	return error;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *handle)
{
	for (int i = 0; i < machine.num_gpus; i++) {
		if (!strcmp(machine.gpus[i].uuid, uuid)) {
			*handle = &handles[i][0];
			return error_of(i, -1);
		}
		for (int m = 0; m < machine.gpus[i].num_migs; m++) {
			if (!strcmp(machine.gpus[i].migs[m].uuid, uuid)) {
				*handle = &handles[i][m + 1];
				return error_of(i, -1);
			}
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *handle)
{
	for (int i = 0; i < machine.num_gpus; i++) {
		if (!strcasecmp(machine.gpus[i].pci, bus_id)) {
			*handle = &handles[i][0];
			return error_of(i, -1);
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

/* ---- identity ---- */

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t handle, unsigned *index)
{
	*index = handle->mig < 0 ? handle->gpu : handle->mig;
	return error_of(handle->gpu, -1);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t handle, unsigned *minor)
{
	*minor = handle->gpu;
	return error_of(handle->gpu, -1);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t handle, char *text, unsigned size)
{
	struct gpu *gpu = &machine.gpus[handle->gpu];
	int error = error_of(handle->gpu, handle->mig < 0 ? -1 : V_mig_instances);

	return error ? error : copy(text, size, handle->mig < 0 ? gpu->uuid : gpu->migs[handle->mig].uuid);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t handle, char *text, unsigned size)
{
	char name[128];
	int error = error_of(handle->gpu, -1);

	snprintf(name, sizeof(name), "%s%s", machine.gpus[handle->gpu].name, handle->mig < 0 ? "" : " MIG");
	return error ? error : copy(text, size, name);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t handle, nvmlPciInfo_t *pci)
{
	int error = error_of(handle->gpu, -1);

	memset(pci, 0, sizeof(*pci));
	pci->pciDeviceId = 0x233010de;
	snprintf(pci->busId, sizeof(pci->busId), "%s", machine.gpus[handle->gpu].pci);
	sscanf(pci->busId, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04x:%02x:%02x.0", pci->domain & 0xffff, pci->bus & 0xff,
		 pci->device & 0xff);
	return error;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t handle, nvmlPciInfo_t *pci) { return nvmlDeviceGetPciInfo_v3(handle, pci); }

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t handle, nvmlDeviceArchitecture_t *architecture)
{
	return ask_unsigned(handle, V_architecture, 1, architecture);
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t handle, int *major, int *minor)
{
	unsigned architecture = 0;
	int error = ask_unsigned(handle, V_architecture, 1, &architecture);

	*major = architecture == 7 ? 8 : (int)architecture;
	*minor = 0;
	return error;
}

/* ---- values, one by one ---- */

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t handle, nvmlUtilization_t *rates)
{
	int error = ask_unsigned(handle, V_utilization, 1, &rates->gpu);

	return error ? error : ask_unsigned(handle, V_memory_utilization, 1, &rates->memory);
}

static int memory(nvmlDevice_t handle, unsigned long long *total, unsigned long long *reserved, unsigned long long *used)
{
	double all = 0, kept = 0, taken = 0;
	int error = (ask)(handle, V_memory_total, &all);

	error = error ? error : (ask)(handle, V_memory_reserved, &kept);
	error = error ? error : (ask)(handle, V_memory_used, &taken);
	if (!error && handle->mig >= 0) {
		all = machine.gpus[handle->gpu].migs[handle->mig].total;
		taken = machine.gpus[handle->gpu].migs[handle->mig].used;
		kept = 0;
	}
	*total = (unsigned long long)(all * MIB);
	*reserved = (unsigned long long)(kept * MIB);
	*used = (unsigned long long)(taken * MIB);
	return error;
}

#define memory(handle, total, reserved, used) (calling = __func__, memory(handle, total, reserved, used))

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t handle, nvmlMemory_t *info)
{
	unsigned long long total, reserved, used;
	int error = memory(handle, &total, &reserved, &used);

	*info = (nvmlMemory_t){ .total = total, .free = total - reserved - used, .used = used + reserved };
	return error;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t handle, nvmlMemory_v2_t *info)
{
	int error = error_of(handle->gpu, V_newer);

	if (!error && info->version != nvmlMemory_v2)
		error = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	error = error ? error : memory(handle, &info->total, &info->reserved, &info->used);
	if (error)
		return error;
	info->free = info->total - info->reserved - info->used;
	return error;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, nvmlTemperatureSensors_t sensor, unsigned *value)
{
	(void)sensor;
	return ask_unsigned(handle, V_temperature, 1, value);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, nvmlTemperature_t *temperature)
{
	int error = error_of(handle->gpu, V_newer);

	if (!error && temperature->version != nvmlTemperature_v1)
		error = NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return error ? error : ask_unsigned(handle, V_temperature, 1, (unsigned *)&temperature->temperature);
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t handle, nvmlMarginTemperature_t *margin)
{
	double value = 0;
	int error = ask(handle, V_margin, &value);

	if (margin->version != nvmlMarginTemperature_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	margin->marginTemperature = (int)value;
	return error;
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, nvmlTemperatureThresholds_t which, unsigned *value)
{
	(void)which;
	*value = 90;
	return error_of(handle->gpu, -1);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned *milliwatts)
{
	double watts = 0;
	int error = ask(handle, V_power_usage, &watts);

	if (error || watts >= 0)
		*milliwatts = (unsigned)llround(watts * 1000);
	return error || watts >= 0 ? error : ask_unsigned(handle, V_power_average, 1000, milliwatts);
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t handle, unsigned *milliwatts)
{
	return ask_unsigned(handle, V_power_limit, 1000, milliwatts);
}

nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t handle, unsigned *milliwatts)
{
	return ask_unsigned(handle, V_power_limit, 1000, milliwatts);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t handle, unsigned long long *millijoules)
{
	double joules = 0;
	int error = ask_energy(handle, &joules);

	*millijoules = (unsigned long long)(joules * 1000);
	return error;
}

nvmlReturn_t nvmlDeviceGetNumFans(nvmlDevice_t handle, unsigned *count)
{
	*count = 1;
	return error_of(handle->gpu, V_fan);
}

nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t handle, unsigned *percent)
{
	return ask_unsigned(handle, V_fan, 1, percent);
}

nvmlReturn_t nvmlDeviceGetFanSpeed_v2(nvmlDevice_t handle, unsigned fan, unsigned *percent)
{
	(void)fan;
	return ask_unsigned(handle, V_fan, 1, percent);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, nvmlClockType_t kind, unsigned *mhz)
{
	return ask_unsigned(handle, kind == NVML_CLOCK_MEM ? V_memory_clock : V_sm_clock, 1, mhz);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t handle, nvmlClockType_t kind, unsigned *mhz)
{
	return nvmlDeviceGetClockInfo(handle, kind, mhz);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t handle, unsigned long long *bits)
{
	double value = 0;
	int error = ask(handle, V_throttle, &value);

	*bits = (unsigned long long)value;
	return error;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t handle, unsigned long long *bits)
{
	return nvmlDeviceGetCurrentClocksEventReasons(handle, bits);
}

/*
 * With SIMULATED_NVML_STRICT the caller is known to be Python, whose ctypes hands over objects on the heap: an
 * address on the stack or inside a library is what some register held, because an argument is missing. A driver
 * writes to it.
 */
static void check_pointer(const char *function, const void *pointer)
{
	pthread_attr_t attributes;
	void *stack;
	size_t size;
	Dl_info library;

	if (!getenv("SIMULATED_NVML_STRICT"))
		return;
	pthread_getattr_np(pthread_self(), &attributes);
	pthread_attr_getstack(&attributes, &stack, &size);
	pthread_attr_destroy(&attributes);
	if (pointer && (uintptr_t)pointer % 4 == 0 && (uintptr_t)pointer - (uintptr_t)stack >= size &&
	    !dladdr(pointer, &library))
		return;
	fprintf(stderr, "simulated NVML: %s: the third argument is no pointer of the caller\n", function);
	abort();
}

static int codec(nvmlDevice_t handle, int key, unsigned *percent, unsigned *period)
{
	*period = 167000;
	return (ask_unsigned)(handle, key, 1, percent);
}

#define codec(handle, key, percent, period) (calling = __func__, codec(handle, key, percent, period))

nvmlReturn_t nvmlDeviceGetEncoderUtilization(nvmlDevice_t handle, unsigned *percent, unsigned *period)
{
	check_pointer(__func__, period);
	return codec(handle, V_encoder, percent, period);
}

nvmlReturn_t nvmlDeviceGetDecoderUtilization(nvmlDevice_t handle, unsigned *percent, unsigned *period)
{
	check_pointer(__func__, period);
	return codec(handle, V_decoder, percent, period);
}

nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t handle, nvmlPstates_t *state)
{
	*state = 0;
	return error_of(handle->gpu, -1);
}

/* The real one measures for 20 ms, and so does this; that it was called is noted beside the file. */
nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t handle, nvmlPcieUtilCounter_t counter, unsigned *value)
{
	const char *path = getenv("SIMULATED_NVML");
	char noted[4096];
	FILE *file;

	(void)counter;
	snprintf(noted, sizeof(noted), "%s.blocked", path ? path : "/tmp/simulated_nvml");
	file = fopen(noted, "a");
	if (file) {
		fprintf(file, "nvmlDeviceGetPcieThroughput\n");
		fclose(file);
	}
	usleep(20000);
	*value = 1000;
	return error_of(handle->gpu, -1);
}

/* ---- fields, many at once ---- */

#define LINKS 18
#define ALL_LINKS 0xffffffffu

/* Bytes of the union that the type does not have keep what was there before, as with a driver. */
static void put(nvmlFieldValue_t *field, nvmlValueType_t type, double value)
{
	field->valueType = type;
	memset(&field->value, 0xa5, sizeof(field->value));
	switch (type) {
	case NVML_VALUE_TYPE_DOUBLE: field->value.dVal = value; break;
	case NVML_VALUE_TYPE_UNSIGNED_INT: field->value.uiVal = (unsigned)llround(value); break;
	case NVML_VALUE_TYPE_UNSIGNED_LONG: field->value.ulVal = (unsigned long)llround(value); break;
	case NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: field->value.ullVal = (unsigned long long)llround(value); break;
	case NVML_VALUE_TYPE_SIGNED_LONG_LONG: field->value.sllVal = llround(value); break;
	case NVML_VALUE_TYPE_SIGNED_INT: field->value.siVal = (int)llround(value); break;
	case NVML_VALUE_TYPE_UNSIGNED_SHORT: field->value.usVal = (unsigned short)llround(value); break;
	default: break;	/* none that nvml.h has */
	}
}

static void answer(nvmlDevice_t handle, nvmlFieldValue_t *field)
{
	static const struct { unsigned id; int key; double scale; int wide; } fields[] = {
		{ NVML_FI_DEV_ECC_SBE_VOL_TOTAL, V_ecc_corrected, 1, 1 },
		{ NVML_FI_DEV_ECC_DBE_VOL_TOTAL, V_ecc_uncorrected, 1, 1 },
		{ NVML_FI_DEV_MEMORY_TEMP, V_memory_temperature, 1, 0 },
		{ NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, V_energy, 1000, 1 },
		{ NVML_FI_DEV_PCIE_REPLAY_COUNTER, V_pcie_replay, 1, 0 },
		{ NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, V_nvlink_tx, 1, 1 },
		{ NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, V_nvlink_rx, 1, 1 },
		{ NVML_FI_DEV_REMAPPED_COR, V_remapped_corrected, 1, 0 },
		{ NVML_FI_DEV_REMAPPED_UNC, V_remapped_uncorrected, 1, 0 },
		{ NVML_FI_DEV_REMAPPED_FAILURE, V_remap_failure, 1, 0 },
		{ NVML_FI_DEV_POWER_AVERAGE, V_power_average, 1000, 0 },
		{ NVML_FI_DEV_POWER_INSTANT, V_power, 1000, 0 },
		{ NVML_FI_DEV_POWER_CURRENT_LIMIT, V_power_limit, 1000, 0 },
		{ NVML_FI_DEV_PCIE_COUNT_TX_BYTES, V_pcie_tx, 1, 1 },
		{ NVML_FI_DEV_PCIE_COUNT_RX_BYTES, V_pcie_rx, 1, 1 },
	};
	double value = 0;
	int type;

	field->timestamp = (long long)(now() * 1e6);
	field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		if (field->fieldId != fields[i].id)
			continue;
		field->nvmlReturn = field->fieldId == NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION ? ask_energy(handle, &value) : (ask)(handle, fields[i].key, &value);
		/* the file has the sum over all links, which are used alike; no other field has a scope here */
		if (fields[i].key == V_nvlink_tx || fields[i].key == V_nvlink_rx)
			value = field->scopeId == ALL_LINKS ? value : value / LINKS;
		else if (field->scopeId)
			field->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT;
		type = machine.gpus[handle->gpu].types[field->fieldId];
		if (type < 0)
			type = fields[i].wide ? NVML_VALUE_TYPE_UNSIGNED_LONG_LONG : NVML_VALUE_TYPE_UNSIGNED_INT;
		put(field, type, value * fields[i].scale);
		return;
	}
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, nvmlFieldValue_t *fields)
{
	int error = error_of(handle->gpu, -1);

	for (int i = 0; !error && i < count; i++)
		answer(handle, &fields[i]);
	return error;
}

/* ---- processes ---- */

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_t *infos)
{
	struct gpu *gpu = &machine.gpus[handle->gpu];
	int error = error_of(handle->gpu, V_processes);
	unsigned room = *count;

	if (error)
		return error;
	*count = gpu->num_processes;
	if (!gpu->num_processes)
		return NVML_SUCCESS;
	if (!infos || room < *count)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < *count; i++)
		infos[i] = (nvmlProcessInfo_t){ gpu->processes[i].pid,
						  gpu->processes[i].mib < 0 ? (unsigned long long)NVML_VALUE_NOT_AVAILABLE :
						  (unsigned long long)(gpu->processes[i].mib * MIB),
						  0xffffffff, 0xffffffff };
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_v2_t *infos)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, (nvmlProcessInfo_t *)infos);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_t *infos)
{
	(void)infos;
	*count = 0;
	return error_of(handle->gpu, V_processes);
}

nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_v2_t *infos)
{
	return nvmlDeviceGetGraphicsRunningProcesses_v3(handle, count, (nvmlProcessInfo_t *)infos);
}

nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_t *infos)
{
	return nvmlDeviceGetGraphicsRunningProcesses_v3(handle, count, infos);
}

/*
 * As a driver: a sample each sixth of a second of every process that was not idle, with the CPU's time; here
 * the newest one of each is all that its buffer holds.
 */
nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t handle, nvmlProcessUtilizationSample_t *samples, unsigned *count,
					     unsigned long long last_seen)
{
	struct gpu *gpu = &machine.gpus[handle->gpu];
	int error = error_of(handle->gpu, V_process_utilization);
	unsigned long long period = 1000000 / 6, newest;
	unsigned busy = 0;
	struct timespec t;

	if (error)
		return error;
	clock_gettime(CLOCK_REALTIME, &t);
	newest = (t.tv_sec * 1000000ULL + t.tv_nsec / 1000) / period * period;
	for (int i = 0; i < gpu->num_processes; i++)
		busy += gpu->processes[i].sm > 0;
	if (!busy || newest <= last_seen)
		return NVML_ERROR_NOT_FOUND;
	if (!samples || *count < busy) {
		*count = busy;
		return NVML_ERROR_INSUFFICIENT_SIZE;
	}
	*count = 0;
	for (int i = 0; i < gpu->num_processes; i++)
		if (gpu->processes[i].sm)
			samples[(*count)++] = (nvmlProcessUtilizationSample_t){ .pid = gpu->processes[i].pid,
										  .timeStamp = newest,
										  .smUtil = gpu->processes[i].sm };
	return NVML_SUCCESS;
}

/* ---- MIG ---- */

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending)
{
	unsigned architecture = 0;
	int error = ask_unsigned(handle, V_architecture, 1, &architecture);

	if (!error && architecture < 7)
		return NVML_ERROR_NOT_SUPPORTED;
	*current = *pending = machine.gpus[handle->gpu].num_migs > 0;
	return error;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned *count)
{
	*count = 7;
	return error_of(handle->gpu, -1);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned index, nvmlDevice_t *mig)
{
	int error = error_of(handle->gpu, -1);

	if (!error && index >= (unsigned)machine.gpus[handle->gpu].num_migs)
		return NVML_ERROR_NOT_FOUND;
	*mig = &handles[handle->gpu][index + 1];
	return error;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *handle)
{
	*handle = &handles[mig->gpu][0];
	return error_of(mig->gpu, -1);
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned *is_mig)
{
	*is_mig = handle->mig >= 0;
	return error_of(handle->gpu, -1);
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned *id)
{
	*id = handle->mig + 7;
	return handle->mig < 0 ? NVML_ERROR_NOT_SUPPORTED : error_of(handle->gpu, -1);
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned *id)
{
	*id = 0;
	return handle->mig < 0 ? NVML_ERROR_NOT_SUPPORTED : error_of(handle->gpu, -1);
}

/* ---- events ---- */

struct nvmlEventSet_st { unsigned char registered[MOST_GPUS]; long told; };

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	*set = calloc(1, sizeof(**set));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	free(set);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t handle, unsigned long long *types)
{
	*types = nvmlEventTypeXidCriticalError;
	return error_of(handle->gpu, V_events);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t handle, unsigned long long types, nvmlEventSet_t set)
{
	int error = error_of(handle->gpu, V_events);

	if (!error)
		set->registered[handle->gpu] = (types & nvmlEventTypeXidCriticalError) != 0;
	return error;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *event, unsigned milliseconds)
{
	double deadline = now() + milliseconds / 1e3;

	do {
		pthread_mutex_lock(&lock);
		look();
		for (int i = 0; i < machine.num_xids; i++) {
			struct xid *xid = &machine.xids[i];

			if (xid->serial > set->told && set->registered[xid->gpu]) {
				set->told = xid->serial;
				*event = (nvmlEventData_t){ &handles[xid->gpu][0], nvmlEventTypeXidCriticalError, xid->code, 0xffffffff,
							 0xffffffff };
				pthread_mutex_unlock(&lock);
				return NVML_SUCCESS;
			}
		}
		pthread_mutex_unlock(&lock);
		usleep(5000);
	} while (now() < deadline);
	return NVML_ERROR_TIMEOUT;
}

/* ---- GPM ---- */

/* A sample holds the activity at its moment; between two of them it is their mean. */
static const struct { unsigned id; int key; } gpm_metrics[] = {
	{ NVML_GPM_METRIC_SM_UTIL, V_sm_activity }, { NVML_GPM_METRIC_ANY_TENSOR_UTIL, V_tensor_activity },
	{ NVML_GPM_METRIC_DRAM_BW_UTIL, V_dram_activity },
};
#define NUM_GPM_METRICS (sizeof(gpm_metrics) / sizeof(*gpm_metrics))

struct nvmlGpmSample_st { nvmlDevice_t handle; double values[NUM_GPM_METRICS]; int errors[NUM_GPM_METRICS]; };

nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t handle, nvmlGpmSupport_t *support)
{
	unsigned architecture = 0;
	int error = ask_unsigned(handle, V_architecture, 1, &architecture);

	support->isSupportedDevice = architecture >= 9;
	return error;
}

nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
	*sample = calloc(1, sizeof(**sample));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
	free(sample);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t handle, nvmlGpmSample_t sample)
{
	unsigned architecture = 0;
	int error = ask_unsigned(handle, V_architecture, 1, &architecture);

	if (error || architecture < 9)
		return error ? error : NVML_ERROR_NOT_SUPPORTED;
	sample->handle = handle;
	for (size_t i = 0; i < NUM_GPM_METRICS; i++)
		sample->errors[i] = ask(handle, gpm_metrics[i].key, &sample->values[i]);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
	if (get->version != NVML_GPM_METRICS_GET_VERSION || !get->sample1->handle || get->sample1->handle != get->sample2->handle)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < get->numMetrics; i++) {
		nvmlGpmMetric_t *metric = &get->metrics[i];

		metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		for (size_t m = 0; m < NUM_GPM_METRICS; m++) {
			if (metric->metricId != gpm_metrics[m].id)
				continue;
			metric->nvmlReturn = get->sample2->errors[m];
			metric->value = (get->sample1->values[m] + get->sample2->values[m]) / 2;
		}
	}
	return NVML_SUCCESS;
}
