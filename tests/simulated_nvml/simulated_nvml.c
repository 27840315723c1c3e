/*
 * A simulated NVML: the part of libnvidia-ml.so.1 that monitoring and its competitors call, for GPUs that
 * a text file describes. For tests, benchmarks and labelled demonstrations only; no value is a measurement.
 *
 * SIMULATED_NVML names the file. It is read again when it has changed, so a test can change what happens
 * while another process samples. Lines (a # begins a comment):
 *
 *	gpus 4				how many there are (default 1)
 *	init driver_not_loaded		nvmlInit fails so
 *	all KEY VALUE			for every GPU
 *	gpu 2 KEY VALUE			for one
 *	gpu 2 process PID MIB		a process that computes on it; its name is that of /proc or "simulated"; a
 *					MIB below 0 is a memory that NVML does not tell
 *	gpu 2 mig UUID TOTAL_MIB USED_MIB
 *	gpu 2 type FIELD TYPE		the nvmlValueType_t in which nvmlDeviceGetFieldValues gives the field
 *	xid 2 79 SERIAL			an Xid event, raised once when a SERIAL above all earlier ones is seen
 *
 * A VALUE is a number, LOW~HIGH/SECONDS for a triangle wave, or one of the words unsupported, denied, lost,
 * reset, unknown and hang, which every call for that value then returns (or does, until the file changes).
 * `gpu 2 state lost` does it for every call on the GPU. Texts: uuid, name, pci. Keys and units: see `keys`.
 */

#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST_GPUS 64
#define MOST_PROCESSES 16
#define MOST_MIGS 8
#define MOST_XIDS 64
#define MOST_FIELDS 256
#define MIB (1024.0 * 1024.0)
#define REREAD_EVERY 0.005	/* seconds between looks at the file's time */

enum {
	SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
	INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMED_OUT = 10, GPU_IS_LOST = 15, RESET_REQUIRED = 16,
	UNKNOWN = 999, HANG = -1
};

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
	X(encoder, 0)		/* % */ \
	X(decoder, 0) \
	X(sm_activity, 0)	/* %, GPM */ \
	X(tensor_activity, 0) \
	X(dram_activity, 0) \
	X(architecture, 9)	/* NVML_DEVICE_ARCH: 7 Ampere, 9 Hopper */ \
	X(processes, 0)		/* only for words */ \
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
struct process { unsigned pid; double mib; };
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
struct machine {
	int num_gpus, init_error, num_xids;
	struct gpu gpus[MOST_GPUS];
	struct xid xids[MOST_XIDS];
};

/* A handle is a GPU, or one of its MIG instances; they stay where they are while the machine changes. */
struct handle { int gpu, mig; };
static struct handle handles[MOST_GPUS][MOST_MIGS + 1];

static struct machine machine, next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double looked, started;
static struct timespec read_version;
static off_t read_size = -1;
static int initialized;

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
		{ "unsupported", NOT_SUPPORTED }, { "denied", NO_PERMISSION }, { "lost", GPU_IS_LOST },
		{ "unknown", UNKNOWN }, { "hang", HANG }, { "driver_not_loaded", DRIVER_NOT_LOADED },
		{ "uninitialized", UNINITIALIZED }, { "reset", RESET_REQUIRED },
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

		sscanf(rest, "%u %lf", &process->pid, &process->mib);
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
				handles[gpu][mig] = (struct handle){ gpu, mig - 1 };
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

/*
 * The error of a call on a GPU, and with a key the value; waits while the file says that it hangs, or how
 * long a call takes.
 */
static int ask_index(int index, int key, double *value)
{
	for (;;) {
		int error = SUCCESS, delay = 0;

		pthread_mutex_lock(&lock);
		look();
		if (!initialized) {
			error = UNINITIALIZED;
		} else if (index < 0 || index >= machine.num_gpus) {
			error = INVALID_ARGUMENT;
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
		pthread_mutex_unlock(&lock);
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

static int ask(struct handle *handle, int key, double *value)
{
	return handle ? ask_index(handle->gpu, key, value) : INVALID_ARGUMENT;
}

static int ask_unsigned(struct handle *handle, int key, double scale, unsigned *value)
{
	double number = 0;
	int error = ask(handle, key, &number);

	if (!error)
		*value = (unsigned)llround(number * scale);
	return error;
}

/* Joules: what the file says, else the mean power since the library was loaded, beginning at 1000. */
static int ask_energy(struct handle *handle, double *joules)
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

static int copy(char *to, unsigned size, const char *from)
{
	if (strlen(from) + 1 > size)
		return INSUFFICIENT_SIZE;
	strcpy(to, from);
	return SUCCESS;
}

/* ---- the library and the machine ---- */

int nvmlInitWithFlags(unsigned flags)
{
	int error;

	(void)flags;
	pthread_mutex_lock(&lock);
	looked = 0;
	look();
	error = machine.init_error;
	initialized = !error;
	pthread_mutex_unlock(&lock);
	return error;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
	initialized = 0;
	return SUCCESS;
}

const char *nvmlErrorString(int error)
{
	switch (error) {
	case SUCCESS: return "Success";
	case UNINITIALIZED: return "Uninitialized";
	case INVALID_ARGUMENT: return "Invalid Argument";
	case NOT_SUPPORTED: return "Not Supported";
	case NO_PERMISSION: return "Insufficient Permissions";
	case NOT_FOUND: return "Not Found";
	case INSUFFICIENT_SIZE: return "Insufficient Size";
	case DRIVER_NOT_LOADED: return "Driver Not Loaded";
	case TIMED_OUT: return "Timeout";
	case GPU_IS_LOST: return "GPU is lost";
	case RESET_REQUIRED: return "GPU requires restart";
	default: return "Unknown Error";
	}
}

int nvmlSystemGetDriverVersion(char *text, unsigned size) { return copy(text, size, "580.00.00"); }
int nvmlSystemGetNVMLVersion(char *text, unsigned size) { return copy(text, size, "13.580.00.00"); }

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	*version = 13000;
	return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion(int *version) { return nvmlSystemGetCudaDriverVersion_v2(version); }

int nvmlSystemGetProcessName(unsigned pid, char *name, unsigned size)
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

int nvmlDeviceGetCount_v2(unsigned *count)
{
	pthread_mutex_lock(&lock);
	look();
	*count = machine.num_gpus;
	pthread_mutex_unlock(&lock);
	return initialized ? SUCCESS : UNINITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **handle)
{
	int error = error_of(index, -1);

	if (!error)
		*handle = &handles[index][0];
	return error;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct handle **handle)
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
	return NOT_FOUND;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, struct handle **handle)
{
	for (int i = 0; i < machine.num_gpus; i++) {
		if (!strcasecmp(machine.gpus[i].pci, bus_id)) {
			*handle = &handles[i][0];
			return error_of(i, -1);
		}
	}
	return NOT_FOUND;
}

/* ---- identity ---- */

int nvmlDeviceGetIndex(struct handle *handle, unsigned *index)
{
	*index = handle->mig < 0 ? handle->gpu : handle->mig;
	return error_of(handle->gpu, -1);
}

int nvmlDeviceGetMinorNumber(struct handle *handle, unsigned *minor)
{
	*minor = handle->gpu;
	return error_of(handle->gpu, -1);
}

int nvmlDeviceGetUUID(struct handle *handle, char *text, unsigned size)
{
	struct gpu *gpu = &machine.gpus[handle->gpu];
	int error = error_of(handle->gpu, handle->mig < 0 ? -1 : V_mig_instances);

	return error ? error : copy(text, size, handle->mig < 0 ? gpu->uuid : gpu->migs[handle->mig].uuid);
}

int nvmlDeviceGetName(struct handle *handle, char *text, unsigned size)
{
	char name[128];
	int error = error_of(handle->gpu, -1);

	snprintf(name, sizeof(name), "%s%s", machine.gpus[handle->gpu].name, handle->mig < 0 ? "" : " MIG");
	return error ? error : copy(text, size, name);
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(struct handle *handle, struct pci *pci)
{
	int error = error_of(handle->gpu, -1);

	memset(pci, 0, sizeof(*pci));
	pci->id = 0x233010de;
	snprintf(pci->bus_id, sizeof(pci->bus_id), "%s", machine.gpus[handle->gpu].pci);
	sscanf(pci->bus_id, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
	snprintf(pci->legacy, sizeof(pci->legacy), "%04x:%02x:%02x.0", pci->domain & 0xffff, pci->bus & 0xff,
		 pci->device & 0xff);
	return error;
}

int nvmlDeviceGetPciInfo_v2(struct handle *handle, struct pci *pci) { return nvmlDeviceGetPciInfo_v3(handle, pci); }

int nvmlDeviceGetArchitecture(struct handle *handle, unsigned *architecture)
{
	return ask_unsigned(handle, V_architecture, 1, architecture);
}

int nvmlDeviceGetCudaComputeCapability(struct handle *handle, int *major, int *minor)
{
	unsigned architecture = 0;
	int error = ask_unsigned(handle, V_architecture, 1, &architecture);

	*major = architecture == 7 ? 8 : (int)architecture;
	*minor = 0;
	return error;
}

/* ---- values, one by one ---- */

int nvmlDeviceGetUtilizationRates(struct handle *handle, unsigned *rates)
{
	int error = ask_unsigned(handle, V_utilization, 1, &rates[0]);

	return error ? error : ask_unsigned(handle, V_memory_utilization, 1, &rates[1]);
}

static int memory(struct handle *handle, uint64_t *total, uint64_t *reserved, uint64_t *used)
{
	double all = 0, kept = 0, taken = 0;
	int error = ask(handle, V_memory_total, &all);

	error = error ? error : ask(handle, V_memory_reserved, &kept);
	error = error ? error : ask(handle, V_memory_used, &taken);
	if (!error && handle->mig >= 0) {
		all = machine.gpus[handle->gpu].migs[handle->mig].total;
		taken = machine.gpus[handle->gpu].migs[handle->mig].used;
		kept = 0;
	}
	*total = (uint64_t)(all * MIB);
	*reserved = (uint64_t)(kept * MIB);
	*used = (uint64_t)(taken * MIB);
	return error;
}

int nvmlDeviceGetMemoryInfo(struct handle *handle, uint64_t *info)
{
	uint64_t total, reserved, used;
	int error = memory(handle, &total, &reserved, &used);

	info[0] = total;
	info[1] = total - reserved - used;
	info[2] = used + reserved;
	return error;
}

int nvmlDeviceGetMemoryInfo_v2(struct handle *handle, uint64_t *info)
{
	int error = error_of(handle->gpu, V_newer);

	error = error ? error : memory(handle, &info[1], &info[2], &info[4]);
	if (error)
		return error;
	info[3] = info[1] - info[2] - info[4];
	return error;
}

int nvmlDeviceGetTemperature(struct handle *handle, unsigned sensor, unsigned *value)
{
	(void)sensor;
	return ask_unsigned(handle, V_temperature, 1, value);
}

struct temperature { unsigned version, sensor; int value; };

int nvmlDeviceGetTemperatureV(struct handle *handle, struct temperature *temperature)
{
	int error = error_of(handle->gpu, V_newer);

	return error ? error : ask_unsigned(handle, V_temperature, 1, (unsigned *)&temperature->value);
}

struct margin { unsigned version; int value; };

int nvmlDeviceGetMarginTemperature(struct handle *handle, struct margin *margin)
{
	double value = 0;
	int error = ask(handle, V_margin, &value);

	margin->value = (int)value;
	return error;
}

int nvmlDeviceGetTemperatureThreshold(struct handle *handle, unsigned which, unsigned *value)
{
	(void)which;
	*value = 90;
	return error_of(handle->gpu, -1);
}

int nvmlDeviceGetPowerUsage(struct handle *handle, unsigned *milliwatts)
{
	double watts = 0;
	int error = ask(handle, V_power_usage, &watts);

	if (error || watts >= 0)
		*milliwatts = (unsigned)llround(watts * 1000);
	return error || watts >= 0 ? error : ask_unsigned(handle, V_power_average, 1000, milliwatts);
}

int nvmlDeviceGetEnforcedPowerLimit(struct handle *handle, unsigned *milliwatts)
{
	return ask_unsigned(handle, V_power_limit, 1000, milliwatts);
}

int nvmlDeviceGetPowerManagementLimit(struct handle *handle, unsigned *milliwatts)
{
	return ask_unsigned(handle, V_power_limit, 1000, milliwatts);
}

int nvmlDeviceGetTotalEnergyConsumption(struct handle *handle, uint64_t *millijoules)
{
	double joules = 0;
	int error = ask_energy(handle, &joules);

	*millijoules = (uint64_t)(joules * 1000);
	return error;
}

int nvmlDeviceGetNumFans(struct handle *handle, unsigned *count)
{
	*count = 1;
	return error_of(handle->gpu, V_fan);
}

int nvmlDeviceGetFanSpeed(struct handle *handle, unsigned *percent)
{
	return ask_unsigned(handle, V_fan, 1, percent);
}

int nvmlDeviceGetFanSpeed_v2(struct handle *handle, unsigned fan, unsigned *percent)
{
	(void)fan;
	return ask_unsigned(handle, V_fan, 1, percent);
}

int nvmlDeviceGetClockInfo(struct handle *handle, unsigned kind, unsigned *mhz)
{
	return ask_unsigned(handle, kind == 2 ? V_memory_clock : V_sm_clock, 1, mhz);
}

int nvmlDeviceGetMaxClockInfo(struct handle *handle, unsigned kind, unsigned *mhz)
{
	return nvmlDeviceGetClockInfo(handle, kind, mhz);
}

int nvmlDeviceGetCurrentClocksEventReasons(struct handle *handle, uint64_t *bits)
{
	double value = 0;
	int error = ask(handle, V_throttle, &value);

	*bits = (uint64_t)value;
	return error;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(struct handle *handle, uint64_t *bits)
{
	return nvmlDeviceGetCurrentClocksEventReasons(handle, bits);
}

static int codec(struct handle *handle, int key, unsigned *percent, unsigned *period)
{
	*period = 167000;
	return ask_unsigned(handle, key, 1, percent);
}

int nvmlDeviceGetEncoderUtilization(struct handle *handle, unsigned *percent, unsigned *period)
{
	return codec(handle, V_encoder, percent, period);
}

int nvmlDeviceGetDecoderUtilization(struct handle *handle, unsigned *percent, unsigned *period)
{
	return codec(handle, V_decoder, percent, period);
}

int nvmlDeviceGetPerformanceState(struct handle *handle, unsigned *state)
{
	*state = 0;
	return error_of(handle->gpu, -1);
}

/* The real one measures for 20 ms, and so does this; that it was called is noted beside the file. */
int nvmlDeviceGetPcieThroughput(struct handle *handle, unsigned counter, unsigned *value)
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

struct field {
	unsigned id, scope;
	int64_t time, latency;
	unsigned type;
	int error;
	union { double d; unsigned ui; unsigned long ul; uint64_t ull; int64_t sll; int si; unsigned short us; } value;
};

#define LINKS 18
#define ALL_LINKS 0xffffffffu

/* nvmlValueType_t */
enum { DOUBLE, UNSIGNED, UNSIGNED_LONG, UNSIGNED_LONG_LONG, SIGNED_LONG_LONG, SIGNED, UNSIGNED_SHORT };

/* Bytes of the union that the type does not have keep what was there before, as with a driver. */
static void put(struct field *field, unsigned type, double value)
{
	field->type = type;
	memset(&field->value, 0xa5, sizeof(field->value));
	switch (type) {
	case DOUBLE: field->value.d = value; break;
	case UNSIGNED: field->value.ui = (unsigned)llround(value); break;
	case UNSIGNED_LONG: field->value.ul = (unsigned long)llround(value); break;
	case UNSIGNED_LONG_LONG: field->value.ull = (uint64_t)llround(value); break;
	case SIGNED_LONG_LONG: field->value.sll = llround(value); break;
	case SIGNED: field->value.si = (int)llround(value); break;
	case UNSIGNED_SHORT: field->value.us = (unsigned short)llround(value); break;
	}
}

static void answer(struct handle *handle, struct field *field)
{
	static const struct { unsigned id; int key; double scale; int wide; } fields[] = {
		{ 3, V_ecc_corrected, 1, 1 }, { 4, V_ecc_uncorrected, 1, 1 }, { 82, V_memory_temperature, 1, 0 },
		{ 83, V_energy, 1000, 1 }, { 94, V_pcie_replay, 1, 0 }, { 138, V_nvlink_tx, 1, 1 },
		{ 139, V_nvlink_rx, 1, 1 }, { 142, V_remapped_corrected, 1, 0 }, { 143, V_remapped_uncorrected, 1, 0 },
		{ 185, V_power_average, 1000, 0 }, { 186, V_power, 1000, 0 }, { 190, V_power_limit, 1000, 0 },
		{ 197, V_pcie_tx, 1, 1 }, { 198, V_pcie_rx, 1, 1 },
	};
	double value = 0;
	int type;

	field->time = (int64_t)(now() * 1e6);
	field->error = NOT_SUPPORTED;
	for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++) {
		if (field->id != fields[i].id)
			continue;
		field->error = field->id == 83 ? ask_energy(handle, &value) : ask(handle, fields[i].key, &value);
		/* the file has the sum over all links, which are used alike; no other field has a scope here */
		if (field->id == 138 || field->id == 139)
			value = field->scope == ALL_LINKS ? value : value / LINKS;
		else if (field->scope)
			field->error = INVALID_ARGUMENT;
		type = machine.gpus[handle->gpu].types[field->id];
		if (type < 0)
			type = fields[i].wide ? UNSIGNED_LONG_LONG : UNSIGNED;
		put(field, type, value * fields[i].scale);
		return;
	}
}

int nvmlDeviceGetFieldValues(struct handle *handle, int count, struct field *fields)
{
	int error = error_of(handle->gpu, -1);

	for (int i = 0; !error && i < count; i++)
		answer(handle, &fields[i]);
	return error;
}

/* ---- processes ---- */

struct process_info { unsigned pid; uint64_t used; unsigned gpu_instance, compute_instance; };

int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *handle, unsigned *count, struct process_info *infos)
{
	struct gpu *gpu = &machine.gpus[handle->gpu];
	int error = error_of(handle->gpu, V_processes);
	unsigned room = *count;

	if (error)
		return error;
	*count = gpu->num_processes;
	if (!gpu->num_processes)
		return SUCCESS;
	if (!infos || room < *count)
		return INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < *count; i++)
		infos[i] = (struct process_info){ gpu->processes[i].pid,
						  gpu->processes[i].mib < 0 ? UINT64_MAX :
						  (uint64_t)(gpu->processes[i].mib * MIB),
						  0xffffffff, 0xffffffff };
	return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v2(struct handle *handle, unsigned *count, struct process_info *infos)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(handle, count, infos);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(struct handle *handle, unsigned *count, struct process_info *infos)
{
	(void)infos;
	*count = 0;
	return error_of(handle->gpu, V_processes);
}

int nvmlDeviceGetGraphicsRunningProcesses_v2(struct handle *handle, unsigned *count, struct process_info *infos)
{
	return nvmlDeviceGetGraphicsRunningProcesses_v3(handle, count, infos);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct handle *handle, unsigned *count, struct process_info *infos)
{
	return nvmlDeviceGetGraphicsRunningProcesses_v3(handle, count, infos);
}

/* ---- MIG ---- */

int nvmlDeviceGetMigMode(struct handle *handle, unsigned *current, unsigned *pending)
{
	unsigned architecture = 0;
	int error = ask_unsigned(handle, V_architecture, 1, &architecture);

	if (!error && architecture < 7)
		return NOT_SUPPORTED;
	*current = *pending = machine.gpus[handle->gpu].num_migs > 0;
	return error;
}

int nvmlDeviceGetMaxMigDeviceCount(struct handle *handle, unsigned *count)
{
	*count = 7;
	return error_of(handle->gpu, -1);
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *handle, unsigned index, struct handle **mig)
{
	int error = error_of(handle->gpu, -1);

	if (!error && index >= (unsigned)machine.gpus[handle->gpu].num_migs)
		return NOT_FOUND;
	*mig = &handles[handle->gpu][index + 1];
	return error;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct handle *mig, struct handle **handle)
{
	*handle = &handles[mig->gpu][0];
	return error_of(mig->gpu, -1);
}

int nvmlDeviceIsMigDeviceHandle(struct handle *handle, unsigned *is_mig)
{
	*is_mig = handle->mig >= 0;
	return error_of(handle->gpu, -1);
}

int nvmlDeviceGetGpuInstanceId(struct handle *handle, unsigned *id)
{
	*id = handle->mig + 7;
	return handle->mig < 0 ? NOT_SUPPORTED : error_of(handle->gpu, -1);
}

int nvmlDeviceGetComputeInstanceId(struct handle *handle, unsigned *id)
{
	*id = 0;
	return handle->mig < 0 ? NOT_SUPPORTED : error_of(handle->gpu, -1);
}

/* ---- events ---- */

struct event_set { unsigned char registered[MOST_GPUS]; long told; };
struct event { struct handle *device; uint64_t type, data; unsigned gpu_instance, compute_instance; };

int nvmlEventSetCreate(struct event_set **set)
{
	*set = calloc(1, sizeof(**set));
	return SUCCESS;
}

int nvmlEventSetFree(struct event_set *set)
{
	free(set);
	return SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(struct handle *handle, uint64_t *types)
{
	*types = 8;
	return error_of(handle->gpu, V_events);
}

int nvmlDeviceRegisterEvents(struct handle *handle, uint64_t types, struct event_set *set)
{
	int error = error_of(handle->gpu, V_events);

	if (!error)
		set->registered[handle->gpu] = (types & 8) != 0;
	return error;
}

int nvmlEventSetWait_v2(struct event_set *set, struct event *event, unsigned milliseconds)
{
	double deadline = now() + milliseconds / 1e3;

	do {
		pthread_mutex_lock(&lock);
		look();
		for (int i = 0; i < machine.num_xids; i++) {
			struct xid *xid = &machine.xids[i];

			if (xid->serial > set->told && set->registered[xid->gpu]) {
				set->told = xid->serial;
				*event = (struct event){ &handles[xid->gpu][0], 8, xid->code, 0xffffffff,
							 0xffffffff };
				pthread_mutex_unlock(&lock);
				return SUCCESS;
			}
		}
		pthread_mutex_unlock(&lock);
		usleep(5000);
	} while (now() < deadline);
	return TIMED_OUT;
}

/* ---- GPM ---- */

/* A sample holds the activity at its moment; between two of them it is their mean. */
static const struct { unsigned id; int key; } gpm_metrics[] = {
	{ 2, V_sm_activity }, { 5, V_tensor_activity }, { 10, V_dram_activity },
};
#define NUM_GPM_METRICS (sizeof(gpm_metrics) / sizeof(*gpm_metrics))

struct gpm_sample { struct handle *handle; double values[NUM_GPM_METRICS]; int errors[NUM_GPM_METRICS]; };
struct gpm_metric { unsigned id; int error; double value; const char *names[3]; };
struct gpm_get {
	unsigned version, count;
	struct gpm_sample *first, *second;
	struct gpm_metric metrics[477];
};

int nvmlGpmQueryDeviceSupport(struct handle *handle, unsigned *support)
{
	unsigned architecture = 0;
	int error = ask_unsigned(handle, V_architecture, 1, &architecture);

	support[1] = architecture >= 9;
	return error;
}

int nvmlGpmSampleAlloc(struct gpm_sample **sample)
{
	*sample = calloc(1, sizeof(**sample));
	return SUCCESS;
}

int nvmlGpmSampleFree(struct gpm_sample *sample)
{
	free(sample);
	return SUCCESS;
}

int nvmlGpmSampleGet(struct handle *handle, struct gpm_sample *sample)
{
	unsigned architecture = 0;
	int error = ask_unsigned(handle, V_architecture, 1, &architecture);

	if (error || architecture < 9)
		return error ? error : NOT_SUPPORTED;
	sample->handle = handle;
	for (size_t i = 0; i < NUM_GPM_METRICS; i++)
		sample->errors[i] = ask(handle, gpm_metrics[i].key, &sample->values[i]);
	return SUCCESS;
}

int nvmlGpmMetricsGet(struct gpm_get *get)
{
	if (get->version != 1 || !get->first->handle || get->first->handle != get->second->handle)
		return INVALID_ARGUMENT;
	for (unsigned i = 0; i < get->count; i++) {
		struct gpm_metric *metric = &get->metrics[i];

		metric->error = NOT_SUPPORTED;
		for (size_t m = 0; m < NUM_GPM_METRICS; m++) {
			if (metric->id != gpm_metrics[m].id)
				continue;
			metric->error = get->second->errors[m];
			metric->value = (get->first->values[m] + get->second->values[m]) / 2;
		}
	}
	return SUCCESS;
}
